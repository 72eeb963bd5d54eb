"""OpenRouter: which models are routed, under which names, and who may serve them."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from control_tower.cli.run import run
from control_tower.errors import StateError, UsageError
from control_tower.models.rate_sources import Prices
from control_tower.models.roles import RoleSpec, make_models, parse_roles, unpinned


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USE_OPENROUTER", "USE_OPENROUTER_PROVIDERS", "OPENROUTER_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variables", "given", "asked"),
    [
        ({}, "haiku", "anthropic/claude-haiku-4-5"),
        ({"USE_OPENROUTER": "0"}, "haiku", "anthropic/claude-haiku-4-5"),
        ({"USE_OPENROUTER": "1"}, "haiku", "openrouter/anthropic/claude-haiku-4.5"),
        (
            {"USE_OPENROUTER": "true"},
            "anthropic/claude-haiku-4-5-20251001",
            "openrouter/anthropic/claude-haiku-4.5",
        ),
        (
            {"USE_OPENROUTER": "1"},
            "anthropic/claude-3-5-haiku-20241022",
            "openrouter/anthropic/claude-3.5-haiku",
        ),
        ({"USE_OPENROUTER": "1"}, "openai/gpt-4o-2024-08-06", "openrouter/openai/gpt-4o-2024-08-06"),
        ({"USE_OPENROUTER": "1"}, "grok/grok-4", "openrouter/x-ai/grok-4"),
        ({"USE_OPENROUTER_PROVIDERS": "anthropic, google"}, "smart", "openai/gpt-6-astra"),
        ({"USE_OPENROUTER_PROVIDERS": "anthropic,openai"}, "smart", "openrouter/openai/gpt-6-astra"),
        ({}, "openrouter/anthropic/claude-opus-4-8-20260101", "openrouter/anthropic/claude-opus-4.8"),
        ({}, "openrouter/qwen/qwen3-coder", "openrouter/qwen/qwen3-coder"),
        # What the user or this process serves is never routed, nor a vendor's model at another service.
        ({"USE_OPENROUTER": "1"}, "vllm/claude-haiku-4-5", "vllm/claude-haiku-4-5"),
        ({"USE_OPENROUTER": "1"}, "sglang/x", "sglang/x"),
        ({"USE_OPENROUTER": "1"}, "hf/org/x", "hf/org/x"),
        ({"USE_OPENROUTER": "1"}, "ollama/x", "ollama/x"),
        ({"USE_OPENROUTER": "1"}, "openai-api/own/x", "openai-api/own/x"),
        ({"USE_OPENROUTER": "1"}, "openai/azure/deployment", "openai/azure/deployment"),
        ({"USE_OPENROUTER": "1"}, "demo/agent", "demo/agent"),
    ],
)
def test_names(variables: dict[str, str], given: str, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    spec = parse_roles([f"untrusted={given}"])["untrusted"]
    assert spec.full_name == asked
    assert RoleSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"USE_OPENROUTER": "1", "USE_OPENROUTER_PROVIDERS": "openai"}, "both set"),
        ({"USE_OPENROUTER": "maybe"}, "can be 1 or 0"),
        ({"USE_OPENROUTER_PROVIDERS": "antropic"}, "did you mean 'anthropic'"),
        ({"USE_OPENROUTER_PROVIDERS": "vllm"}, "'vllm' cannot be routed"),
    ],
)
def test_what_cannot_be_is_refused(
    variables: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=said):
        parse_roles(["untrusted=haiku"])


def test_a_missing_key_is_said_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USE_OPENROUTER", "1")
    with pytest.raises(StateError, match="set OPENROUTER_API_KEY"):
        make_models(parse_roles(["untrusted=haiku"]))


def test_the_variables_may_stand_in_dotenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("USE_OPENROUTER=1\n")
    monkeypatch.chdir(tmp_path)
    # Set and unset, so that what is loaded is taken back after the test.
    monkeypatch.setenv("USE_OPENROUTER", "")
    monkeypatch.delenv("USE_OPENROUTER")
    words = ["eval", "-e", "demo/web_scraping", "-t", "crawl_depth", "--model-role", "untrusted=haiku"]
    done = CliRunner().invoke(run, words)
    assert "openrouter/anthropic/claude-haiku-4.5 needs a key" in str(done.exception)


def test_a_model_that_several_providers_may_serve_is_named() -> None:
    pinned = 'b={"model_name": "openrouter/qwen/qwen3-coder", "openrouter": {"only": ["deepinfra"]}}'
    roles = parse_roles(
        ["a=openrouter/qwen/qwen3", pinned, "c=openrouter/anthropic/claude-opus-4.8", "d=haiku"]
    )
    assert unpinned(roles) == ["openrouter/qwen/qwen3"]


@pytest.mark.parametrize(
    ("name", "direct"),
    [
        ("openrouter/anthropic/claude-haiku-4.5", "anthropic/claude-haiku-4-5"),
        ("openrouter/openai/gpt-6-luna", "openai/gpt-6-luna"),
    ],
)
def test_routed_models_have_prices(name: str, direct: str) -> None:
    prices = Prices()
    assert prices.find(name) is not None
    assert prices.find(name) == prices.find(direct)
