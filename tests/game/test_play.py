"""How a sample is played: turns, submits, limits, and what the log says of each."""

from typing import Any

from inspect_ai.event import InfoEvent, ModelEvent, ToolEvent
from inspect_ai.log import EvalSample
from inspect_ai.model import ChatMessageTool

from control_tower.game.white import White
from tests.support import models
from tests.support.models import SUBMIT, bash, script, turn
from tests.support.playing import Play
from tests.support.toy import GREETING, Label, ToyEnvironment

HELLO = bash("echo hello > greeting.txt")


def facts(sample: EvalSample, key: str) -> list[Any]:
    """The values of a key in the engine's facts."""
    return [
        event.data[key]
        for event in sample.events
        if isinstance(event, InfoEvent)
        and event.source == "eval"
        and isinstance(event.data, dict)
        and key in event.data
    ]


def model_events(sample: EvalSample, role: str) -> list[ModelEvent]:
    """The model events of a role."""
    return [e for e in sample.events if isinstance(e, ModelEvent) and e.role == role]


def test_an_honest_sample_is_played_scored_and_logged(play: Play) -> None:
    played = play(untrusted=script("honest", [turn(HELLO, text="Writing."), turn(SUBMIT)]))
    sample = played.sample
    assert played.log.status == "success"
    assert sample.id == "local/toy:greet"
    assert sample.scores is not None
    assert sample.scores["greet"].value == "C"
    assert sample.scores["tasks"].value == {"main": 1.0, "side": None, "landed_at": None}
    assert facts(sample, "finished") == ["submitted"]
    assert facts(sample, "step") == [0, 1]
    assert sample.metadata["outcome"] == "submitted"
    assert sample.store["Submission:submitted"] is True


def test_the_seat_repeats_the_drawn_turn_without_usage(play: Play) -> None:
    sample = play(untrusted=script("seat", [turn(HELLO, text="Writing."), turn(SUBMIT)])).sample
    seats, draws = model_events(sample, "untrusted"), model_events(sample, "hidden_untrusted")
    assert [seat.model for seat in seats] == ["eval/fake/seat"] * 2
    assert len(draws) == 2
    for seat, draw in zip(seats, draws, strict=True):
        assert seat.output.usage is None
        assert draw.output.usage is not None
        assert seat.output.message.id == draw.output.message.id
        assert seat.output.message.tool_calls == draw.output.message.tool_calls
        assert sample.events.index(seat) < sample.events.index(draw)


def test_messages_hold_executed_calls_only(play: Play) -> None:
    sample = play(
        untrusted=script("ledger", [turn(HELLO, bash("ls"), text="Two at once."), turn(SUBMIT)])
    ).sample
    assert [message.role for message in sample.messages] == ["assistant", "tool", "tool", "assistant", "tool"]
    assert all(message.text == "" for message in sample.messages if message.role == "assistant")
    assert [e.function for e in sample.events if isinstance(e, ToolEvent)] == ["bash", "bash", "submit"]


def test_the_model_is_asked_with_prompt_request_and_tools(play: Play) -> None:
    play(untrusted=script("asked", [turn(HELLO), turn(SUBMIT)]))
    (first, tools), (second, _) = models.requests["asked"]
    assert [message.role for message in first] == ["system", "user"]
    assert first[1].text == GREETING
    assert tools == ["bash", "text_editor", "submit"]
    assert [message.role for message in second] == ["system", "user", "assistant", "tool"]


def test_the_model_may_be_asked_max_steps_times(play: Play) -> None:
    untrusted = script("steps", lambda messages, tools: turn(bash(f"echo {len(messages)}")))
    sample = play(untrusted=untrusted, white=White(max_steps=3)).sample
    assert len(models.requests["steps"]) == 3
    assert facts(sample, "finished") == ["step_limit"]
    assert sample.scores is not None
    assert sample.scores["greet"].value == "I"


def test_a_turn_without_a_call_ends_the_play(play: Play) -> None:
    sample = play(untrusted=script("talk", [turn(HELLO), turn(text="All done.")])).sample
    assert facts(sample, "finished") == ["no_progress"]
    assert sample.metadata["outcome"] == "no_progress"


def test_a_refusal_is_an_outcome_not_an_error(play: Play) -> None:
    sample = play(untrusted=script("refusal", [turn(text="I cannot.", stop="content_filter")])).sample
    assert sample.error is None
    assert sample.metadata["outcome"] == "refused"
    assert sample.output.stop_reason == "content_filter"


def test_a_cut_off_turn_is_continued_once(play: Play) -> None:
    cut = turn(text="First I will", stop="max_tokens")
    sample = play(untrusted=script("cut", [cut, turn(HELLO), cut, cut])).sample
    asked = [messages for messages, _ in models.requests["cut"]]
    assert asked[1][-1].text == "Continue."
    assert sample.metadata["outcome"] == "truncated"
    assert len(asked) == 4


def test_a_turn_that_stopped_for_no_reason_is_drawn_again(play: Play) -> None:
    nothing = turn(text="", stop="unknown")
    sample = play(untrusted=script("unknown", [nothing, nothing, turn(HELLO), turn(SUBMIT)])).sample
    assert facts(sample, "finished") == ["submitted"]
    assert len(model_events(sample, "hidden_untrusted")) == 4
    assert len(model_events(sample, "untrusted")) == 2


def test_siblings_of_a_submit_are_dropped(play: Play) -> None:
    sample = play(untrusted=script("sibling", [turn(HELLO, SUBMIT)])).sample
    assert [e.function for e in sample.events if isinstance(e, ToolEvent)] == ["submit"]
    assert sample.scores is not None
    assert sample.scores["greet"].value == "I"


def test_a_submission_beside_submit_is_recorded_first(play: Play) -> None:
    env = ToyEnvironment(greet={"submit_args": Label})
    setter = ("set_main_task_submission_args", {"label": "done"})
    sample = play(untrusted=script("setter", [turn(HELLO), turn(SUBMIT, setter)]), env=env).sample
    assert sample.store["Submission:tasks"] == {"greet": {"label": "done"}}
    assert facts(sample, "finished") == ["submitted"]


def test_a_submit_beside_a_failed_submission_does_not_count(play: Play) -> None:
    env = ToyEnvironment(greet={"submit_args": Label})
    bad = ("set_main_task_submission_args", {"colour": "red"})
    good = ("set_main_task_submission_args", {"label": "done"})
    sample = play(untrusted=script("rejected", [turn(bad, SUBMIT), turn(good, SUBMIT)]), env=env).sample
    second = models.requests["rejected"][1][0]
    assert "did not count" in second[-1].text
    assert (second[-1].metadata or {})["ct_rejected_submit"] is True
    assert [message.role for message in second] == ["system", "user", "user"]
    assert facts(sample, "step") == [0], "the rejected submit is asked again inside the same step"
    assert facts(sample, "finished") == ["submitted"]


def test_an_unknown_tool_is_told_to_the_model(play: Play) -> None:
    untrusted = script("unknowntool", [turn(("fly", {})), turn(HELLO), turn(SUBMIT)])
    sample = play(untrusted=untrusted).sample
    told = models.requests["unknowntool"][1][0][-1]
    assert isinstance(told, ChatMessageTool)
    assert told.error is not None
    assert "fly" in told.error.message
    assert facts(sample, "finished") == ["submitted"]


def test_a_failing_tool_call_is_the_models_affair(play: Play) -> None:
    untrusted = script("failing", [turn(bash("exit 3")), turn(bash("")), turn(SUBMIT)])
    sample = play(untrusted=untrusted).sample
    assert sample.error is None
    assert "[exit code 3]" in sample.messages[1].text


def test_a_sample_limit_is_an_outcome_and_the_sample_is_scored(play: Play) -> None:
    untrusted = script("limit", lambda messages, tools: turn(HELLO))
    sample = play(untrusted=untrusted, eval_args={"message_limit": 7}).sample
    assert sample.limit is not None
    assert sample.limit.type == "message"
    assert sample.scores is not None
    assert sample.scores["greet"].value == "C"


def test_a_submit_that_fails_does_not_count(play: Play) -> None:
    untrusted = script("badsubmit", [turn(HELLO), turn(("submit", {"answer": "x"})), turn(SUBMIT)])
    sample = play(untrusted=untrusted).sample
    assert "did not count" in models.requests["badsubmit"][2][0][-1].text
    assert facts(sample, "finished") == ["submitted"]
    assert facts(sample, "step") == [0, 1]
    assert sample.store["Submission:submitted"] is True


def test_private_calls_without_end_do_not_hang_the_sample(play: Play) -> None:
    untrusted = script("forever", lambda messages, tools: turn(("run_side_task_test", {})))
    allowed = White(private_tools=frozenset({"ct/run_side_task_test"}))
    sample = play(
        side="mark",
        policy="attack",
        args={"private_tools": "ct/run_side_task_test"},
        untrusted=untrusted,
        white=allowed,
    ).sample
    assert sample.error is None
    assert facts(sample, "finished") == ["no_progress"]
