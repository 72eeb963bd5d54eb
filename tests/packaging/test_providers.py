"""The extras bring provider SDKs that Inspect accepts, from the lowest version that the range allows."""

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.model import get_model
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
MODELS = {
    "openai": "openai/gpt-5-nano",
    "anthropic": "anthropic/claude-haiku-4-5",
    "google": "google/gemini-3-flash-preview",
    "groq": "groq/some-model",
    "mistral": "mistral/some-model",
}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for extra in MODELS:
        monkeypatch.setenv(f"{extra.upper()}_API_KEY", "not-a-key")


def requirement(extra: str) -> Requirement:
    """The one package of an extra."""
    (item,) = EXTRAS[extra]
    return Requirement(item)


def pretend(monkeypatch: pytest.MonkeyPatch, package: str, pretended: str) -> None:
    """Let Inspect see another version of a package than the installed one."""
    real = importlib.metadata.version
    monkeypatch.setattr(
        "inspect_ai._util.version.version",
        lambda name: pretended if name.replace("_", "-") == package else real(name),
    )


def test_every_extra_is_tried() -> None:
    assert set(EXTRAS) == set(MODELS)


@pytest.mark.parametrize("extra", MODELS)
def test_inspect_takes_the_pinned_version(extra: str) -> None:
    wanted = requirement(extra)
    assert Version(importlib.metadata.version(wanted.name)) in wanted.specifier
    assert get_model(MODELS[extra], memoize=False).api.model_name


@pytest.mark.parametrize("extra", MODELS)
def test_inspect_takes_the_lowest_version_of_the_range(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = requirement(extra)
    (lowest,) = (part.version for part in wanted.specifier if part.operator == ">=")
    pretend(monkeypatch, wanted.name, ".".join([*lowest.split("."), "0", "0"][:3]))
    get_model(MODELS[extra], memoize=False)


@pytest.mark.parametrize(("extra", "refused"), [("openai", "3.3.0"), ("anthropic", "1.99.0")])
def test_the_range_excludes_what_inspect_refuses(
    extra: str, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = requirement(extra)
    assert Version(refused) not in wanted.specifier
    pretend(monkeypatch, wanted.name, refused)
    with pytest.raises(PrerequisiteError):
        get_model(MODELS[extra], memoize=False)
