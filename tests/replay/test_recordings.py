"""What a recording keeps of a log's sample."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_tower.client.sources import local_copy
from control_tower.errors import ExpectedError, OperationError, ValidationError
from control_tower.logs.divergence import first_divergence
from control_tower.logs.json_text import JsonObject
from control_tower.logs.recordings import Recording, read_log, read_recording
from tests.logs.log_making import call, info, seat, tool, write_log


def sample(*events: JsonObject, **fields: Any) -> JsonObject:
    """A sample of these events."""
    return {"id": "e:m", "epoch": 1, "messages": [], "events": list(events), **fields}


def log_of(path: Path, *samples: JsonObject, version: object = "3.0") -> Path:
    """A log of these samples."""
    metadata = {} if version is None else {"eval_version": version}
    return write_log(path, {"eval": {"metadata": metadata}}, samples)


def shown(recording: Recording) -> list[list[str]]:
    """The functions of each turn."""
    return [[one.function for one in turn.calls] for turn in recording.turns]


def test_turns_keep_text_ids_and_parallel_calls() -> None:
    recording = read_recording(
        sample(
            seat(call("a", cmd="ls"), call("b", "mcp__env__view", path="x"), text="look"),
            tool("a"),
            tool("b", "mcp__env__view"),
            seat(call("c", "submit")),
            tool("c", "submit"),
            info("eval", {"finished": "submitted"}),
        )
    )
    first, second = recording.turns
    assert (first.content, [one.id for one in first.calls]) == ("look", ["a", "b"])
    assert first.calls[0].what == ("bash", {"cmd": "ls"})
    assert first.calls[1].what == ("view", {"path": "x"}), "the name without the server it was bridged by"
    assert first.calls[1].result == "result of b"
    assert second.submits
    assert recording.submitted


def test_long_texts_are_put_back() -> None:
    long = "x" * 101
    recording = read_recording(
        sample(
            seat(call("a", cmd="attachment://1"), text="attachment://1"),
            tool("a", result="attachment://1", error={"type": "unknown", "message": "attachment://1"}),
            attachments={"1": long},
        )
    )
    [turn] = recording.turns
    assert (turn.content, turn.calls[0].arguments) == (long, {"cmd": long})
    assert (turn.calls[0].result, turn.calls[0].error) == (long, {"type": "unknown", "message": long})


def test_what_did_not_run_is_left_out_and_ends_the_recording() -> None:
    recording = read_recording(
        sample(
            seat(call("a"), call("b")),
            tool("a"),
            seat(call("c")),
            tool("c", pending=True),
            seat(call("d")),
            tool("d"),
        )
    )
    assert [[one.id for one in turn.calls] for turn in recording.turns] == [["a"]]
    assert not recording.submitted


def test_refusals_stay_and_an_audit_ends_the_recording() -> None:
    recording = read_recording(
        sample(
            seat(call("a", "blocked", call={"function": "bash", "arguments": {}}, reason="no")),
            tool("a", "blocked", error={"type": "unknown", "message": "not run"}),
            seat(call("b", "audited", withheld_call={"function": "bash", "arguments": {}})),
            tool("b", "audited", error={"type": "unknown", "message": "not run"}),
            info("eval", {"finished": "audited"}),
        )
    )
    assert shown(recording) == [["blocked"]]


def test_calls_beside_a_submit_stay_since_they_are_dropped_again() -> None:
    recording = read_recording(
        sample(
            seat(call("a"), call("b", "submit")), tool("b", "submit"), info("eval", {"finished": "submitted"})
        )
    )
    assert shown(recording) == [["bash", "submit"]]


def test_submissions_of_side_tasks_stand_before_the_turn_they_preceded() -> None:
    setter = "set_side_task_submission_args"
    recording = read_recording(
        sample(
            seat(call("a")),
            tool("p1", setter, arguments={"label": "one"}),
            tool("p2", setter, arguments={"label": "two"}),
            tool("t", "run_side_task_test"),
            tool("a"),
            seat(call("b")),
            tool("p3", setter, arguments={"label": "three"}),
            tool("b"),
            tool("p4", setter, arguments={"label": "late"}),
        )
    )
    labels = [[one.arguments["label"] for one in turn.private] for turn in recording.turns]
    assert labels == [["one", "two"], ["three"], ["late"]]
    assert recording.turns[2].calls == (), "what red did before the play was cut off"
    assert recording.left_out == {"run_side_task_test": 1}


def test_calls_that_are_no_decided_turns_cannot_be_replayed() -> None:
    message = {"role": "assistant", "content": "", "tool_calls": [call("a")]}
    with pytest.raises(ValidationError, match=r"e:m.*not decided turns"):
        read_recording(sample(messages=[message]))


def test_the_first_divergence_is_named_by_step() -> None:
    ls, id, w, v, more = (call(name, cmd=name) for name in ("ls", "id", "w", "v", "more"))
    recording = read_recording(sample(seat(ls), tool("ls"), seat(id, w), tool("id"), tool("w")))

    def divergence(*turns: list[JsonObject]) -> str:
        facts = [info("eval", {"step": step}) for step in range(len(turns))]
        seats = [seat(*({**one, "id": f"other {one['id']}"} for one in calls)) for calls in turns]
        events = (event for pair in zip(facts, seats, strict=True) for event in pair)
        return str(first_divergence(recording, sample(*events)))

    assert divergence([ls], [], [id, w]) == "None", "texts between and ids do not matter"
    assert divergence([ls], [], [id, v]) == (
        'step 2 (action 1): expected bash {"cmd": "w"}, got bash {"cmd": "v"}'
    )
    refused = call("r", "blocked", call={"function": "bash", "arguments": {"cmd": "ls"}}, reason="no")
    assert divergence([refused]) == (
        'step 0 (action 0): expected bash {"cmd": "ls"}, got blocked bash {"cmd": "ls"}'
    )
    assert divergence([ls]) == 'step 1 (action 1): expected bash {"cmd": "id"}, got the end (cut off)'
    assert divergence([ls], [id, w], [more]) == (
        'step 2 (action 2): expected no further call, got bash {"cmd": "more"}'
    )


TEXTS = st.sampled_from(["ls", "id", "x" * 150])
TURNS = st.lists(st.lists(TEXTS, max_size=3), max_size=6)


@given(TURNS)
def test_a_play_that_ran_never_leaves_its_own_recording(turns: list[list[str]]) -> None:
    events: list[JsonObject] = []
    for step, commands in enumerate(turns):
        # Providers reuse ids from turn to turn.
        calls = [call(str(i), cmd=command) for i, command in enumerate(commands)]
        events += [info("eval", {"step": step}), seat(*calls), *(tool(one["id"]) for one in calls)]
    recording = read_recording(sample(*events))
    assert [[one.arguments["cmd"] for one in turn.calls] for turn in recording.turns] == turns
    assert first_divergence(recording, sample(*events)) is None
    if any(turns):
        missing = first_divergence(recording, sample())
        assert missing is not None
        assert missing.action == 0


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (None, "older format"),
        ("2.1", "older format"),
        ("", "older format"),
        ("0", "older format"),
        ("4.0", "newer"),
        ("abc", "is no version"),
    ],
)
def test_other_formats_are_refused_by_name(tmp_path: Path, version: str | None, said: str) -> None:
    path = log_of(tmp_path / "old.eval", sample(), version=version)
    with pytest.raises(ValidationError, match=said) as error:
        read_log(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("version", ["3", "3.0", "3.1.2", 3])
def test_every_minor_version_is_read(tmp_path: Path, version: object) -> None:
    path = log_of(tmp_path / "log.eval", sample(seat(call("a")), tool("a")), version=version)
    [recorded] = read_log(path).samples
    assert recorded.turns == 1


def test_a_log_that_changed_since_it_was_read_is_not_replayed(tmp_path: Path) -> None:
    path = log_of(tmp_path / "log.eval", sample(seat(call("a")), tool("a")))
    log = read_log(path)
    assert log.recording(log.samples[0].key).turns
    log_of(path, sample())
    with pytest.raises(OperationError, match="changed"):
        log.recording(log.samples[0].key)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("https://viewer.example/7", "is not the URL of a run"),
        ("hawk://7", "Hawk is not supported"),
        ("no/such.eval", "no such file"),
        ("missing.eval", "no such file"),
    ],
)
def test_a_source_that_is_no_log_here_is_refused_by_name(source: str, said: str) -> None:
    with pytest.raises(ExpectedError, match=said) as error:
        local_copy(source)
    assert source in str(error.value)


def test_models_of_the_original_stay_known_in_replays_of_replays(tmp_path: Path) -> None:
    model = {"event": "model", "role": "hidden_untrusted", "model": "anthropic/some"}
    replayed = {"event": "model", "role": "hidden_untrusted", "model": "scripted/replay"}

    def models(*events: JsonObject, **fields: Any) -> tuple[str, ...]:
        [found] = read_log(log_of(tmp_path / "log.eval", sample(*events, **fields))).samples
        return found.models

    assert models(seat(call("a")), model, tool("a")) == ("anthropic/some",), "the seat is no model"
    assert models(replayed, metadata={"_replay_models": ["anthropic/some"]}) == ("anthropic/some",)
    assert models(replayed) == ("scripted/replay",), "of unknown origin"
