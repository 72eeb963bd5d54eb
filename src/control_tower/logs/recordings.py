"""Recordings: the samples of a log as what can be played again, turns and what their calls answered.

A recording keeps what ran. It ends where the sample's play was cut off or its action withheld for an audit;
calls that blue refused stay in it as refusals, which do nothing, so that every action keeps its number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from control_tower.errors import OperationError, ValidationError
from control_tower.logs.actions import Call, Transcript, Turn
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.events import is_seat_turn, tool_calls
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.logs.tool_names import SUBMIT, bare_name, is_submission_tool

REPLAY_SOURCE = "_replay_source"
REPLAY_SAMPLE_ID = "_replay_eval_sample_id"
REPLAY_EPOCH = "_replay_epoch"
"""Sample metadata of a replay: the file name, sample id and epoch of what it replays."""

REPLAY_MODELS = "_replay_models"
"""Sample metadata of a replay: every model that answered while the original was played."""

REPLAYS = "scripted/replay"
"""The model name under which the replay policy answers."""


@dataclass(frozen=True)
class RecordedCall:
    """One call as it was decided, and what came of it; long texts are put back."""

    id: str
    function: str
    """The tool's own name."""
    arguments: JsonObject
    parse_error: str | None = None
    """Why the model's arguments could not be read."""
    result: Any = ""
    """What the tool returned."""
    error: JsonObject | None = None
    """`type` and `message`, when it failed."""

    @property
    def what(self) -> tuple[str, JsonObject]:
        """Function and arguments: calls that are equal in these are the same call."""
        return self.function, self.arguments


@dataclass(frozen=True)
class RecordedTurn:
    """One decided turn."""

    content: Any
    """The message's content: text, or Inspect's content parts."""
    stop_reason: str
    calls: tuple[RecordedCall, ...]
    private: tuple[RecordedCall, ...] = ()
    """Submissions of side tasks that red recorded before the turn, unseen by blue."""

    @property
    def submits(self) -> bool:
        """Whether it hands the work in."""
        return any(call.function == SUBMIT for call in self.calls)


@dataclass(frozen=True)
class Recording:
    """What one sample's play consisted of."""

    turns: tuple[RecordedTurn, ...]
    submitted: bool
    """Whether a submit ended it."""
    left_out: dict[str, int]
    """As `RecordedSample.left_out`."""


@dataclass(frozen=True)
class RecordedSample:
    """A sample of a log: everything but its turns."""

    key: SampleKey
    env_id: str
    env_args: JsonObject
    main_ids: tuple[str, ...]
    side_ids: tuple[str, ...]
    replay: JsonObject
    """What it records about being a replay itself."""
    turns: int
    """How many decided turns its recording has."""
    scores: JsonObject
    """Its Scores as JSON, by name."""
    models: tuple[str, ...]
    """Every model that answered while it was first played, sorted."""
    error: str | None
    """What it failed with."""
    left_out: dict[str, int]
    """Calls that red made for itself and that are not played again, counted by tool."""


@dataclass(frozen=True)
class RecordedLog:
    """A log that samples are taken from."""

    path: Path
    version: tuple[int, int]
    """Size and time of last change: what was planned is what is played."""
    header: JsonObject
    samples: tuple[RecordedSample, ...]

    @property
    def metadata(self) -> JsonObject:
        """The header's metadata."""
        return child(self.header["eval"], "metadata")

    def recording(self, key: SampleKey) -> Recording:
        """The turns of a sample.

        Raises:
            OperationError: The file is not the one that was read first.
            DamagedArchive: The sample is not readable.
        """
        if _version(self.path) != self.version:
            raise OperationError(f"{self.path}: changed since the run was planned; start the run again")
        with EvalArchive.open(self.path) as archive:
            return read_recording(archive.sample(key))


def read_log(path: Path) -> RecordedLog:
    """The samples of a log, in the order they were planned: the order they ended in is chance.

    Raises:
        ValidationError: It is of an older or a newer format, has no samples, or one that cannot be replayed.
        DamagedArchive: It cannot be read.
    """
    version = _version(path)
    with EvalArchive.open(path) as archive:
        header = archive.header()
        check_format(path, header)
        planned: list[int | str] = child(header["eval"], "dataset").get("sample_ids") or []
        order = {str(sample_id): place for place, sample_id in enumerate(planned)}
        keys = sorted(
            archive.sample_keys(),
            key=lambda key: (key.epoch, order.get(str(key.id), len(order)), str(key.id)),
        )
        samples = tuple(_recorded_sample(archive.sample(key), key) for key in keys)
    if not samples:
        raise ValidationError(f"{path}: the log has no samples")
    return RecordedLog(path, version, header, samples)


def check_format(path: Path | str, header: JsonObject) -> None:
    """Refuse logs of another major format than 3.

    Raises:
        ValidationError: With what to do.
    """
    stated = child(header["eval"], "metadata").get("eval_version")
    major = "" if stated is None else str(stated).partition(".")[0].strip()
    if stated is None or major == "" or (major.isdecimal() and int(major) < 3):
        raise ValidationError(
            f"{path}: the log is of an older format ({stated or 'no eval_version'}) and must be converted "
            "first (`ct runs convert`)"
        )
    if not major.isdecimal():
        raise ValidationError(f"{path}: eval_version {stated!r} is no version")
    if int(major) > 3:
        raise ValidationError(f"{path}: the log's format {stated} is newer than this version of ct reads")


def read_recording(sample: JsonObject) -> Recording:
    """The turns of a sample of a log, as far as they ran.

    Raises:
        ValidationError: It has calls but no decided turns.
    """
    transcript = Transcript.of(sample)
    if not transcript.turns and any(tool_calls(message) for message in children(sample, "messages")):
        raise ValidationError(f"sample {sample.get('id')}: its calls are not decided turns: cannot replay it")
    private, left_out = _private_calls(transcript)
    turns: list[RecordedTurn] = []
    pending: tuple[RecordedCall, ...] = ()
    for position, turn in enumerate(transcript.turns):
        pending += private.get((position, False), ())
        if turn.calls and not _executed(turn):
            break
        turns.append(_turn(transcript, turn, pending))
        pending = private.get((position, True), ())
    if pending:
        turns.append(RecordedTurn("", "stop", (), pending))
    return Recording(tuple(turns), transcript.finish_reason == "submitted", dict(left_out))


def _turn(transcript: Transcript, turn: Turn, private: tuple[RecordedCall, ...]) -> RecordedTurn:
    executed = _executed(turn)
    # Beside a submit other calls are dropped when the turn is played, now as then.
    calls = turn.calls if any(call.name == SUBMIT for call in turn.calls) else executed
    choice = children(child(turn.event, "output"), "choices")[0]
    return RecordedTurn(
        content=transcript.resolve(turn.message.get("content") or ""),
        stop_reason=str(choice.get("stop_reason") or "stop"),
        calls=tuple(
            _call(transcript, call.id, call.function, call.arguments, call.event, _parse_error(turn, call))
            for call in calls
        ),
        private=private,
    )


def _executed(turn: Turn) -> tuple[Call, ...]:
    """The calls that were carried out, as themselves or as a refusal; none of an action that was audited."""
    if any(call.audited for call in turn.calls):
        return ()
    return tuple(call for call in turn.calls if call.event is not None and not call.event.get("pending"))


def _call(
    transcript: Transcript,
    id: str,
    function: str,
    arguments: JsonObject,
    event: JsonObject | None,
    parse_error: str | None = None,
) -> RecordedCall:
    done = event or {}
    result = done.get("result")
    return RecordedCall(
        id=id,
        function=bare_name(function),
        arguments=transcript.resolve(arguments),
        parse_error=parse_error,
        result="" if result is None else transcript.resolve(result),
        error=transcript.resolve(child(done, "error")) or None,
    )


def _parse_error(turn: Turn, call: Call) -> str | None:
    if not call.unreadable:
        return None
    return next(raw.get("parse_error") for raw in tool_calls(turn.message) if raw["id"] == call.id)


Place = tuple[int, bool]
"""A turn's position, and whether it is after its calls ran."""


def _private_calls(
    transcript: Transcript,
) -> tuple[dict[Place, tuple[RecordedCall, ...]], Counter[str]]:
    """Red's own calls: submissions by their place, and how many others there are of each tool.

    A turn's event comes before the calls red made while it was drawn, which come before its own calls.
    """
    found: dict[Place, tuple[RecordedCall, ...]] = {}
    left_out: Counter[str] = Counter()
    position, own, ran = -1, dict[str, str](), False
    turns = iter(transcript.turns)
    for event in transcript.events:
        if is_seat_turn(event):
            turn = next(turns)
            own, ran, position = {call.id: call.name for call in turn.calls}, False, position + 1
        elif event.get("event") == "tool":
            id, name = str(event.get("id")), bare_name(str(event.get("function")))
            if own.get(id) == name:
                ran = True
            elif is_submission_tool(name) and not event.get("pending"):
                place = (max(position, 0), ran)
                call = _call(transcript, id, name, child(event, "arguments"), event)
                found[place] = (*found.get(place, ()), call)
            else:
                left_out[name] += 1
    return found, left_out


def _recorded_sample(sample: JsonObject, key: SampleKey) -> RecordedSample:
    error, recording = child(sample, "error"), read_recording(sample)
    metadata = child(sample, "metadata")
    environment = child(metadata, "environment")
    return RecordedSample(
        key=key,
        env_id=str(environment.get("id")),
        env_args=child(environment, "env_args"),
        main_ids=tuple(str(task.get("id")) for task in children(metadata, "main_tasks")),
        side_ids=tuple(str(task.get("id")) for task in children(metadata, "side_tasks")),
        replay={name: value for name, value in metadata.items() if name.startswith("_replay_")},
        turns=len(recording.turns),
        scores=child(sample, "scores"),
        models=tuple(sorted(set(_models(sample)))),
        error=str(error.get("message")) if error else None,
        left_out=recording.left_out,
    )


def _models(sample: JsonObject) -> Iterator[str]:
    earlier: Any = child(sample, "metadata").get(REPLAY_MODELS)
    if isinstance(earlier, list):
        yield from (str(name) for name in cast("list[Any]", earlier))
    for event in children(sample, "events"):
        model = str(event.get("model"))
        # What a replay says was said by the models of its original.
        if event.get("event") == "model" and not is_seat_turn(event) and (model != REPLAYS or not earlier):
            yield model


def _version(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise OperationError(f"{path}: cannot be read: {error.strerror}") from error
    return status.st_size, status.st_mtime_ns
