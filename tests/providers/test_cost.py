"""What runs cost: tokens as each provider counts them, priced by hand, by role."""

import itertools
from pathlib import Path

import pytest

from control_tower.errors import StateError
from control_tower.evals.run_config import FunctionRef
from tests.providers.conftest import CHAT, MESSAGES, RESPONSES, SUBMIT, Play, bash, role
from tests.support.provider_records import Answer, Call, Tokens
from tests.support.provider_stub import OPENAI_KEY, ProviderStub

HELLO = bash("echo hello > greeting.txt")
MARK = bash("echo mark > marked.txt")

PRICES = {
    # Dollars of a million tokens: input, cache read, cache write, output.
    RESPONSES: (0.05, 0.005, 0.05, 0.40),
    "openai/gpt-6-luna": (0.10, 0.01, 0.125, 0.50),
    CHAT: (2.50, 1.25, 2.50, 10.00),
    MESSAGES: (1.00, 0.10, 1.25, 5.00),
}


def price(model: str, tokens: Tokens) -> float:
    """The cost of an answer; reasoning is part of the output, and nothing is paid twice."""
    uncached, cached, written, output = PRICES[model]
    dollars = (
        tokens.uncached * uncached
        + tokens.cached * cached
        + tokens.written * written
        + tokens.output * output
    )
    return dollars / 1_000_000


FIRST = Tokens(uncached=1_200, written=3_000, output=700, reasoning=450)
SECOND = Tokens(uncached=300, cached=4_096, output=50)


@pytest.mark.parametrize("model", PRICES)
@pytest.mark.parametrize("streamed", [True, False])
def test_cached_written_and_reasoning_tokens_are_counted_once(
    model: str, streamed: bool, play: Play, stub: ProviderStub
) -> None:
    stub.script(
        model,
        [Answer("", [HELLO], reasoning="Hm.", tokens=FIRST), Answer("", [SUBMIT], tokens=SECOND)],
    )
    played = play(role(model, **({"stream_idle_timeout": 60} if streamed else {"max_tokens": 4000})))
    assert {request.streamed for request in stub.requests} == {streamed}
    usage = played.log.stats.role_usage["hidden_untrusted"]
    assert usage.input_tokens == 1_500
    assert (usage.input_tokens_cache_read, usage.input_tokens_cache_write) == (4_096, 3_000)
    assert (usage.output_tokens, usage.reasoning_tokens) == (750, 450)
    assert usage.total_tokens == 1_500 + 4_096 + 3_000 + 750
    expected = price(model, FIRST) + price(model, SECOND)
    assert usage.total_cost == pytest.approx(expected, rel=1e-9)
    shown = played.results.as_json()
    assert shown["cost_usd"] == pytest.approx(expected, rel=1e-9)
    assert shown["cost_incomplete"] is False
    assert shown["fresh_cost"] == {"usd": pytest.approx(expected, rel=1e-9), "incomplete": False}
    assert shown["cached_answers"] == 0
    assert played.log.stats.model_usage[model].total_cost == pytest.approx(expected, rel=1e-9)
    assert played.sample.role_usage["hidden_untrusted"].total_cost == pytest.approx(expected, rel=1e-9)


def test_cost_is_told_by_role(play: Play, stub: ProviderStub) -> None:
    plan, move, end = Tokens(output=900, reasoning=800), Tokens(uncached=2_000), Tokens(cached=1_024)
    stub.script(RESPONSES, [Answer("Be sly.", tokens=plan)])
    stub.script(MESSAGES, [Answer("", [HELLO, MARK], tokens=move), Answer("", [SUBMIT], tokens=end)])
    played = play(MESSAGES, "mark", args={"plan": "once"}, roles=(f"red_planner={RESPONSES}",))
    by_role = {name: cost["usd"] for name, cost in played.results.as_json()["cost_by_role"].items()}
    assert by_role == {
        "red_planner": pytest.approx(price(RESPONSES, plan), rel=1e-9),
        "hidden_untrusted": pytest.approx(price(MESSAGES, move) + price(MESSAGES, end), rel=1e-9),
    }
    assert played.results.cost.usd == pytest.approx(sum(by_role.values()), rel=1e-9)


@pytest.mark.parametrize("model", ["openai/gpt-5-nano-preview-of-something", "openai/no-such-model"])
def test_a_model_without_a_price_is_unpriced_and_never_free(
    model: str, play: Play, stub: ProviderStub
) -> None:
    stub.script(model, [Answer("", [HELLO]), Answer("", [SUBMIT])])
    played = play(model)
    assert played.run.unpriced == [model]
    shown = played.results.as_json()
    assert (shown["cost_usd"], shown["cost_incomplete"]) == (None, True)


def test_a_price_of_zero_is_a_price(
    play: Play, stub: ProviderStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = {"input_per_million": 0, "output_per_million": 0, "cached_input_per_million": 0}
    rates = tmp_path / "rates.json"
    rates.write_text(f'{{"rows": [{{"model": "gpt-4o", "pricing": {str(free).replace(chr(39), chr(34))}}}]}}')
    monkeypatch.setenv("CONTROL_TOWER_MODEL_RATES", str(rates))
    stub.script(CHAT, [Answer("", [HELLO]), Answer("", [SUBMIT])])
    shown = play(CHAT).results.as_json()
    assert (shown["cost_usd"], shown["cost_incomplete"]) == (0, False)


def test_a_long_prompt_is_paid_at_the_rates_of_its_tier(play: Play, stub: ProviderStub) -> None:
    luna = "openai/gpt-6-luna"
    # 272,000 tokens in all are the last of the first tier; one more costs twice, and its output half more.
    at, over = Tokens(uncached=270_000, cached=2_000, output=1_000), Tokens(uncached=270_001, cached=2_000)
    stub.script(luna, [Answer("", [HELLO], tokens=at), Answer("", [SUBMIT], tokens=over)])
    played = play(luna)
    first = price(luna, at)
    second = (270_001 * 0.2 + 2_000 * 0.02 + over.output * 0.75) / 1_000_000
    assert played.results.cost.usd == pytest.approx(first + second, rel=1e-9)
    assert played.log.stats.role_usage["hidden_untrusted"].total_cost == pytest.approx(
        first + second, rel=1e-9
    )


def test_a_cost_limit_needs_a_price_for_every_model(play: Play, stub: ProviderStub) -> None:
    del stub
    with pytest.raises(StateError, match="needs the price of openai/no-such-model"):
        play("openai/no-such-model", eval_args={"cost_limit": 1.0})


def test_openrouter_is_asked_with_our_preferences_and_priced(
    play: Play, stub: ProviderStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_BASE_URL", f"{stub.address}/v1")
    monkeypatch.setenv("OPENROUTER_API_KEY", OPENAI_KEY)
    monkeypatch.setenv("USE_OPENROUTER", "1")
    tokens = Tokens(uncached=1_000, cached=200, output=100)
    stub.script("claude-haiku-4.5", [Answer("", [HELLO], tokens=tokens), Answer("", [SUBMIT], tokens=tokens)])
    played = play("haiku")
    asked = stub.requests[0].body
    assert asked["model"] == "anthropic/claude-haiku-4.5"
    assert (asked["provider"]["only"], asked["provider"]["allow_fallbacks"]) == (["anthropic"], False)
    assert asked["provider"]["data_collection"] == "deny"
    name = "openrouter/anthropic/claude-haiku-4.5"
    assert list(played.results.as_json()["cost_by_model"]) == [name]
    assert played.results.cost.usd == pytest.approx(2 * price(MESSAGES, tokens), rel=1e-9)
    assert played.results.cost.incomplete is False


def verdict(score: int, **tokens: int) -> Answer:
    """A monitor's answer."""
    return Answer("", [Call("score", {"reasoning": "Plain work.", "score": score})], tokens=Tokens(**tokens))


WATCHED = FunctionRef(name="trusted-monitoring", args={"monitors": "[simple]"})


def test_monitors_are_paid_under_their_role_and_scripts_and_the_seat_cost_nothing(
    play: Play, stub: ProviderStub
) -> None:
    stub.script(RESPONSES, itertools.repeat(verdict(3, uncached=2_000, cached=1_000, output=50)))
    played = play("mockllm/model", policy="test", protocol=WATCHED, roles=(f"monitor={RESPONSES}",))
    assert len(stub.requests) == 1  # the listing; the submit is not judged
    shown = played.results.as_json()
    assert list(shown["cost_by_role"]) == ["monitor/simple"]
    assert shown["cost_usd"] == pytest.approx((2_000 * 0.05 + 1_000 * 0.005 + 50 * 0.4) / 1e6, rel=1e-9)
    assert shown["cost_incomplete"] is False


def test_scripts_never_meet_a_cost_limit(play: Play, stub: ProviderStub) -> None:
    played = play("mockllm/model", policy="test", eval_args={"cost_limit": 0.000001})
    assert stub.requests == []
    assert played.outcome == "submitted"
    assert played.results.as_json()["cost_by_role"] == {}


def test_a_cost_limit_counts_what_monitors_cost(play: Play, stub: ProviderStub) -> None:
    cheap = Tokens(uncached=100, output=1)
    stub.script(MESSAGES, itertools.repeat(Answer("", [HELLO], tokens=cheap)))
    # A dollar of a verdict is 20 million tokens of input.
    stub.script(RESPONSES, itertools.repeat(verdict(3, uncached=20_000_000)))
    played = play(MESSAGES, protocol=WATCHED, roles=(f"monitor={RESPONSES}",), eval_args={"cost_limit": 2.5})
    assert played.outcome == "limit:cost"
    assert len(stub.asked(RESPONSES)) == 3
    assert played.results.errored == 0
