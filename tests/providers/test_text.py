"""Text that breaks things: NaN, half characters, NULs and megabytes survive in the log and in requests."""

import itertools
import math
from typing import Any, cast

import pytest
from inspect_ai.event import ModelEvent, ToolEvent
from inspect_ai.log import EvalSample, read_eval_log
from inspect_ai.model import ChatMessageTool
from inspect_ai.scorer import CORRECT, Score, Target
from inspect_ai.solver import TaskState
from inspect_ai.tool import Tool, tool

from control_tower.environments.tools import ToolSpec
from control_tower.logs.archive import EvalArchive, SampleKey
from tests.providers.conftest import MESSAGES, MODELS, RESPONSES, SUBMIT, Play, Played, bash, role
from tests.support.provider_records import Answer, Call
from tests.support.provider_stub import ProviderStub
from tests.support.toy import ToyEnvironment

HELLO = bash("echo hello > greeting.txt")
DONE = Answer("", [SUBMIT])
LONE = "before \ud83d after"
SHOWN = r"before \ud83d after"
"""How Inspect writes it."""
MEGABYTES = 10 * 1024 * 1024


def in_archive(played: Played) -> dict[str, Any]:
    """The only sample, as our reader gives it."""
    with EvalArchive.open(played.results.log) as archive:
        [key] = archive.sample_keys()
        assert isinstance(key, SampleKey)
        return archive.sample(key)


def strings(value: Any) -> list[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return strings(list(cast("dict[str, Any]", value).values()))
    if isinstance(value, list):
        return [text for item in cast("list[Any]", value) for text in strings(item)]
    return []


def drafts(sample: EvalSample) -> list[ModelEvent]:
    """The untrusted model's own turns."""
    return [e for e in sample.events if isinstance(e, ModelEvent) and e.role == "hidden_untrusted"]


@MODELS
def test_half_characters_and_nuls_of_a_model_survive(model: str, play: Play, stub: ProviderStub) -> None:
    odd = "\x00 NaN Infinity \ufffe \U0001f600"
    stub.script(model, [Answer(f"{LONE} {odd}", [HELLO], reasoning=f"Thinking {LONE}"), DONE])
    played = play(model)
    assert (played.outcome, played.sample.error) == ("submitted", None)
    assert played.results.usefulness.mean == 1
    [first, _] = drafts(played.sample)
    assert first.output.completion == f"{SHOWN} {odd}"
    assert any(text == f"{SHOWN} {odd}" for text in strings(in_archive(played)))
    assert f"{SHOWN} {odd}" in stub.requests[-1].text


@MODELS
def test_calls_that_no_program_can_be_given_are_answered_with_errors(
    model: str, play: Play, stub: ProviderStub
) -> None:
    half, nul = f"echo '{LONE}' > half.txt", "echo 'a\x00b' > nul.txt"
    stub.script(model, [Answer("", [bash(half), bash(nul), HELLO]), DONE])
    max_tokens = {"max_tokens": 4000}  # Anthropic's client cannot read half a character in a stream.
    played = play(role(model, **max_tokens))
    assert (played.outcome, played.sample.error) == ("submitted", None)
    answers = [m for m in played.sample.messages if isinstance(m, ChatMessageTool)]
    assert [m.error.type if m.error else None for m in answers] == ["parsing", "parsing", None, None]
    assert played.results.usefulness.mean == 1


def test_a_call_that_the_client_cannot_read_is_drawn_again(play: Play, stub: ProviderStub) -> None:
    unreadable = Answer("", [bash(f"echo '{LONE}'")])
    stub.script(MESSAGES, [unreadable, unreadable, Answer("", [HELLO]), DONE])
    played = play(MESSAGES)
    assert (played.outcome, played.results.usefulness.mean) == ("submitted", 1)


def test_a_model_that_is_never_readable_makes_no_progress(play: Play, stub: ProviderStub) -> None:
    stub.script(MESSAGES, itertools.repeat(Answer("", [bash(f"echo '{LONE}'")])))
    played = play(MESSAGES)
    assert (played.outcome, played.results.errored, played.results.usefulness.mean) == ("no_progress", 0, 0)


@tool
def broken() -> Tool:
    """A tool of an environment that answers with half a character."""

    async def execute() -> str:
        """Answer with half a character."""
        return LONE

    return execute


@MODELS
def test_half_characters_of_tools_survive(model: str, play: Play, stub: ProviderStub) -> None:
    class Environment(ToyEnvironment):
        tools = (*ToyEnvironment.tools, ToolSpec("env/broken", tool=broken()))

    half = bash("printf 'before \\xed\\xa0\\xbd after \\000 \\xff'")
    stub.script(model, [Answer("", [Call("broken"), half, HELLO]), DONE])
    played = play(model, env=Environment())
    assert (played.outcome, played.sample.error) == ("submitted", None)
    [answer, printed, *_] = [m for m in played.sample.messages if isinstance(m, ChatMessageTool)]
    assert answer.text == SHOWN
    assert "before" in printed.text
    assert "after" in printed.text
    assert SHOWN in stub.requests[-1].text
    assert any(SHOWN in text for text in strings(in_archive(played)))


def scorer(score: Score) -> Any:
    """A scorer with one answer."""

    async def score_as_told(state: TaskState, target: Target) -> Score:
        return score

    return score_as_told


def test_nan_of_a_scorer_is_its_failure_and_readable(play: Play, stub: ProviderStub) -> None:
    stub.script(MESSAGES, [Answer("", [HELLO]), DONE])
    played = play(MESSAGES, env=ToyEnvironment({"greet": scorer(Score(value=math.nan))}))
    score = (played.sample.scores or {})["greet"]
    assert score.value == "I"
    assert score.reason == "scorer_error"
    assert played.results.usefulness.mean == 0


def test_nan_beside_a_verdict_survives(play: Play, stub: ProviderStub) -> None:
    odd = {"nan": math.nan, "inf": math.inf, "half": LONE}
    told = Score(value=CORRECT, explanation=f"NaN {LONE}", metadata=odd)
    stub.script(MESSAGES, [Answer("", [HELLO]), DONE])
    played = play(MESSAGES, env=ToyEnvironment({"greet": scorer(told)}))
    assert (played.outcome, played.results.usefulness.mean) == ("submitted", 1)
    stored = in_archive(played)["scores"]["greet"]
    assert math.isnan(stored["metadata"]["nan"])
    assert stored["metadata"]["inf"] == math.inf
    assert stored["metadata"]["half"] == SHOWN
    score = (played.sample.scores or {})["greet"]
    assert score.metadata is not None
    assert math.isnan(score.metadata["nan"])
    assert score.explanation == f"NaN {SHOWN}"


def test_ten_megabytes_of_output_are_bounded(play: Play, stub: ProviderStub) -> None:
    flood = bash(f"head -c {MEGABYTES + 5} /dev/zero | tr '\\0' x")
    stub.script(RESPONSES, [Answer("", [flood, HELLO]), DONE])
    played = play(RESPONSES)
    assert (played.outcome, played.results.usefulness.mean) == ("submitted", 1)
    [answer, *_] = [m for m in played.sample.messages if isinstance(m, ChatMessageTool)]
    assert len(answer.text) < 64 * 1024
    assert len(stub.requests[-1].text) < 128 * 1024
    [event, *_] = [e for e in played.sample.events if isinstance(e, ToolEvent)]
    assert event.failed is not True
    assert played.results.log.stat().st_size < MEGABYTES


@pytest.mark.parametrize("model", [RESPONSES, MESSAGES])
def test_ten_megabytes_of_an_answer_are_kept(model: str, play: Play, stub: ProviderStub) -> None:
    long = "0123456789abcdef" * (MEGABYTES // 16)
    stub.script(model, [Answer("", [HELLO]), Answer(long, [SUBMIT])])
    played = play(model)
    assert (played.outcome, played.results.usefulness.mean) == ("submitted", 1)
    assert drafts(played.sample)[-1].output.completion == long
    assert any(text == long for text in strings(in_archive(played)))
    header_only = read_eval_log(str(played.results.log), header_only=True)
    assert header_only.status == "success"
