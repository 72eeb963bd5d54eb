"""How samples end when a provider refuses, truncates, fails or is slow: by name, and errors as errors."""

import itertools
from typing import Literal

import pytest

from control_tower.game.white import White
from tests.providers.conftest import CHAT, MESSAGES, MODELS, RESPONSES, SUBMIT, Play, bash, role
from tests.support.provider_records import Answer, Call, Failure
from tests.support.provider_stub import ProviderStub

HELLO = bash("echo hello > greeting.txt")
DONE = Answer("", [SUBMIT])
SORRY = "I'm sorry, but I can't help with that."


@MODELS
@pytest.mark.parametrize("stop", ["refusal", "filter"])
def test_a_refusal_is_an_outcome_and_what_was_done_is_scored(
    model: str, stop: Literal["refusal", "filter"], play: Play, stub: ProviderStub
) -> None:
    stub.script(model, [Answer("", [HELLO]), Answer(SORRY, stop=stop)])
    played = play(model)
    assert played.outcome == "refused"
    assert played.sample.metadata["outcome"] == "refused"
    results = played.results
    assert (results.errored, results.unscored, results.usefulness.mean) == (0, 0, 1)
    assert results.as_json()["refused"] == 1
    assert SORRY in played.sample.output.completion


@pytest.mark.parametrize(
    ("model", "failure"),
    [
        (RESPONSES, Failure(400, "Invalid prompt: it may violate our usage policy.", "invalid_prompt")),
        (CHAT, Failure(400, "Your request was rejected.", "content_policy_violation")),
        (MESSAGES, Failure(400, "Output blocked by content filtering policy")),
    ],
)
def test_a_request_refused_for_its_content_is_a_refusal(
    model: str, failure: Failure, play: Play, stub: ProviderStub
) -> None:
    stub.script(model, [Answer("", [HELLO]), failure])
    played = play(model)
    assert played.outcome == "refused"
    assert played.results.errored == 0


@pytest.mark.parametrize(
    ("model", "failure"),
    [
        (RESPONSES, Failure(400, "Your input exceeds the context window.", "context_length_exceeded")),
        (MESSAGES, Failure(400, "prompt is too long: 205000 tokens > 200000 maximum")),
    ],
)
def test_a_conversation_beyond_the_context_is_an_outcome(
    model: str, failure: Failure, play: Play, stub: ProviderStub
) -> None:
    stub.script(model, [Answer("", [HELLO]), failure])
    played = play(model)
    assert played.outcome == "context_full"
    assert played.results.usefulness.mean == 1


@MODELS
def test_a_truncated_answer_is_continued_once(model: str, play: Play, stub: ProviderStub) -> None:
    stub.script(model, [Answer("I start to", stop="length"), Answer("", [HELLO]), DONE])
    assert play(model).outcome == "submitted"
    assert stub.requests[1].turns[-1].text == "Continue."
    assert "I start to" in stub.requests[1].text


@MODELS
def test_truncation_twice_is_an_outcome(model: str, play: Play, stub: ProviderStub) -> None:
    stub.script(model, [Answer("One", stop="length"), Answer("two", stop="length")])
    played = play(model)
    assert played.outcome == "truncated"
    assert played.sample.metadata["outcome"] == "truncated"
    assert played.results.errored == 0


def test_a_call_that_was_cut_off_is_not_run(play: Play, stub: ProviderStub) -> None:
    write = Call("text_editor", {"command": "create", "path": "greeting.txt", "file_text": "much" * 99})
    stub.script(MESSAGES, [Answer("", [HELLO, write], stop="length"), DONE])
    played = play(MESSAGES)
    assert (played.outcome, played.results.usefulness.mean) == ("submitted", 1)
    assert "cut off" in list(stub.requests[-1].results.values())[1]


def test_asking_as_often_as_allowed_is_an_outcome(play: Play, stub: ProviderStub) -> None:
    stub.script(MESSAGES, itertools.repeat(Answer("", [HELLO])))
    played = play(MESSAGES, white=White(max_steps=2))
    assert played.outcome == "step_limit"
    assert len(stub.requests) == 2
    assert played.results.usefulness.mean == 1


@MODELS
def test_a_slow_answer_meets_the_time_limit(model: str, play: Play, stub: ProviderStub) -> None:
    stub.script(model, [Answer("", [HELLO]), Answer("", [SUBMIT], delay=60)])
    played = play(model, eval_args={"time_limit": 10})
    assert played.outcome == "limit:time"
    assert played.sample.error is None
    results = played.results
    assert (results.errored, results.usefulness.mean, dict(results.outcomes)) == (0, 1, {"limit:time": 1})


@pytest.mark.parametrize("limit", ["token_limit", "message_limit", "cost_limit"])
def test_limits_are_outcomes(limit: str, play: Play, stub: ProviderStub) -> None:
    stub.script(MESSAGES, itertools.repeat(Answer("", [HELLO])))
    value = {"token_limit": 2000, "message_limit": 3, "cost_limit": 0.002}[limit]
    played = play(MESSAGES, eval_args={limit: value})
    assert played.outcome == f"limit:{limit.removesuffix('_limit')}"
    assert played.results.errored == 0
    assert played.results.usefulness.mean == 1


@MODELS
def test_what_passes_is_tried_again(model: str, play: Play, stub: ProviderStub) -> None:
    overloaded = 529 if model == MESSAGES else 503
    stub.script(
        model,
        [
            Failure(429, "Rate limit reached", "rate_limit_exceeded" if model != MESSAGES else None, 0.01),
            Answer("", [HELLO]),
            Failure(overloaded, "Overloaded", retry_after=0.01),
            Failure(500, retry_after=0.01),
            DONE,
        ],
    )
    played = play(model)
    assert (played.outcome, played.results.errored) == ("submitted", 0)
    assert played.results.usefulness.mean == 1
    usage = played.log.stats.role_usage["hidden_untrusted"]
    assert usage.total_tokens == 2 * 1100
    assert len(stub.requests) == 5


def test_a_stream_that_breaks_off_is_asked_again(play: Play, stub: ProviderStub) -> None:
    stub.script(MESSAGES, [Failure(529, "Overloaded", in_stream=True), Answer("", [HELLO]), DONE])
    played = play(MESSAGES)
    assert played.outcome == "submitted"
    assert stub.requests[0].streamed


@MODELS
def test_a_provider_that_keeps_failing_errors_the_sample(model: str, play: Play, stub: ProviderStub) -> None:
    stub.script(
        model, [Answer("", [HELLO]), *itertools.repeat(Failure(500, "Out of order", retry_after=0.01), 9)]
    )
    played = play(role(model, max_retries=0))
    assert played.outcome == "error"
    assert played.results.all_errored
    assert played.results.status == "error"
    [error] = played.results.errors
    assert model in error
    assert "Out of order" in error
    assert len(stub.requests) == 1 + 3


def test_retries_can_be_configured(play: Play, stub: ProviderStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTROL_TOWER_MAX_RETRIES", "0")
    stub.script(CHAT, itertools.repeat(Failure(500, retry_after=0.01), 9))
    assert play(CHAT).outcome == "error"
    assert len(stub.requests) == 3  # Of one attempt: OpenAI's client tries three times by itself.


@MODELS
def test_a_request_that_the_provider_rejects_is_an_error_in_its_words(
    model: str, play: Play, stub: ProviderStub
) -> None:
    stub.script(model, [Failure(400, "Unsupported value")])
    played = play(model)
    [error] = played.results.errors
    assert model in error
    assert "Unsupported value" in error
    assert len(stub.requests) == 1


@MODELS
def test_a_wrong_key_is_named_and_not_tried_again(
    model: str, play: Play, stub: ProviderStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "wrong-key-0123456789")
    played = play(model)
    [error] = played.results.errors
    assert "Incorrect API key provided: " in error
    # The provider said which.
    assert "wrong-key" not in error
    assert b"wrong-key" not in played.log_bytes
    assert len(stub.requests) == 1
