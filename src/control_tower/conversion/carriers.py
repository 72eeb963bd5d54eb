"""Where logs without a version kept monitors' verdicts: Scores, messages, the sample's metadata, aliases.

They are read in this order, and of several about one thing the highest number counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from control_tower.conversion.notes import Notes
from control_tower.conversion.old_verdict import OldVerdict, read_verdict_record
from control_tower.conversion.recorded import BOOKKEEPING, Recorded, committed_messages, text_of
from control_tower.errors import ValidationError
from control_tower.logs.archive import SampleKey
from control_tower.logs.events import tool_calls
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.records.monitor_scores import UNSCORED, MonitorKey
from control_tower.records.scores import MONITOR_SCORE

PREFIX = "monitor_"
"""How the names of Scores begin that hold a monitor's verdicts."""

TRAJECTORY = "traj_monitor_result"
ALIASES = "control_tower_fat_aliases"

_ACTION = re.compile(r"action_(\d+)", re.ASCII)


@dataclass(frozen=True)
class Placed:
    """A verdict and what it is about."""

    verdict: OldVerdict
    monitor: str
    live: bool
    """Whether it was given while the sample ran."""
    turn: int | None
    """None for the whole trajectory."""
    draw: int = 1

    @property
    def key(self) -> MonitorKey:
        """Its key in today's Score."""
        return MonitorKey(self.monitor, self.draw, self.turn)


def is_carrier(score: str) -> bool:
    """Whether a Score is one of a monitor."""
    return score == MONITOR_SCORE or score.startswith(PREFIX)


def read_carriers(sample: JsonObject, recorded: Recorded, notes: Notes) -> list[Placed]:
    """All verdicts of a sample in the order in which they are read, without those skipped by design.

    Raises:
        ValidationError: One is about a call that the sample does not have.
    """
    reader = _Reader(sample, recorded, notes)
    found = [*reader.scores(), *reader.messages(), *reader.metadata(), *reader.aliases()]
    notes.changed("verdict skipped by design left out", sum(placed.verdict.by_design for placed in found))
    return [placed for placed in found if not placed.verdict.by_design]


def monitor_score_of(placed: list[Placed], notes: Notes) -> JsonObject:
    """The `monitor` Score, still from 0 to 10: of verdicts under one key the highest, at ties the first."""
    best: dict[str, OldVerdict] = {}
    for one in placed:
        key, known = str(one.key), best.get(str(one.key))
        if known is None or _rank(one.verdict) > _rank(known):
            best[key] = one.verdict
    notes.changed("verdict that a higher one on the same turn outdoes", len(placed) - len(best))
    notes.changed("verdict moved to the monitor Score", len(best))
    return {
        "value": {key: UNSCORED if v.value is None else v.value for key, v in best.items()},
        "metadata": {key: v.why_unscored for key, v in best.items() if v.value is None},
        "history": [],
    }


def _rank(verdict: OldVerdict) -> float:
    return -1.0 if verdict.value is None else verdict.value


class _Reader:
    """The carriers of one sample."""

    def __init__(self, sample: JsonObject, recorded: Recorded, notes: Notes) -> None:
        self._sample = sample
        self._recorded = recorded
        self._notes = notes

    def scores(self) -> Iterator[Placed]:
        """Verdicts given afterwards, as a Score for each monitor."""
        scores = child(self._sample, "scores")
        for name in sorted(filter(is_carrier, scores)):
            monitor = name.removeprefix(PREFIX) or name
            score = child(scores, name)
            value = score.get("value")
            metadata = child(score, "metadata")
            if isinstance(metadata.get("scores"), list):
                yield from self._by_message(children(metadata, "scores"), monitor)
            elif not isinstance(value, dict):
                yield from self._at(score, monitor, None)
            elif _is_current(cast("dict[str, Any]", value)):
                yield from self._by_key(score)
            elif isinstance(metadata.get("action_scores"), list):
                for index, record in enumerate(cast("list[Any]", metadata["action_scores"])):
                    yield from self._at(record, monitor, index)
            else:
                yield from self._numbers(cast("dict[str, Any]", value), monitor)

    def messages(self) -> Iterator[Placed]:
        """Verdicts given while it ran and afterwards, in the metadata of messages."""
        walk = _Walk()
        index = 0
        for message in committed_messages(self._sample):
            metadata = child(message, "metadata")
            if message.get("role") == "assistant":
                calls = tool_calls(message)
                if metadata.get(BOOKKEEPING):
                    walk.after_draft = True
                elif calls:
                    walk.begin(index, calls, metadata)
                    index += len(calls)
            elif verdict := _remark(message, metadata):
                walk.remark(verdict, whole=bool(metadata.get("is_traj_monitor_result")))
        for verdict, live, call in walk.found:
            yield self._placed(verdict, None, live, call)
        if walk.dropped + (walk.held is not None):
            self._notes.changed("verdict on a draft left out", walk.dropped + (walk.held is not None))

    def metadata(self) -> Iterator[Placed]:
        """The verdict on the whole trajectory."""
        verdict = read_verdict_record(child(self._sample, "metadata").get(TRAJECTORY))
        if verdict:
            yield self._placed(verdict, None, False, None)

    def aliases(self) -> Iterator[Placed]:
        """Verdicts of other configurations of monitors, each under an alias."""
        aliases = child(child(self._sample, "metadata"), ALIASES)
        calls = {call.id: index for index, call in reversed(list(enumerate(self._recorded.calls)))}
        for alias in sorted(aliases):
            answers = child(child(aliases, alias), "action_monitor_responses")
            for key in answers:
                answer = child(answers, key)
                if verdict := read_verdict_record(answer.get("monitor_response")):
                    id = str(answer.get("tool_call_id"))
                    if id not in calls:
                        raise self._refused(
                            f"monitor alias {alias!r} judges the call {id!r}, which it does not have"
                        )
                    yield self._placed(verdict, _aliased(verdict, alias), False, calls[id])
            if verdict := read_verdict_record(child(aliases, alias).get("traj_monitor_response")):
                yield self._placed(verdict, _aliased(verdict, alias), False, None)

    def _numbers(self, value: Mapping[str, Any], monitor: str) -> Iterator[Placed]:
        """Numbers by `action_<i>`, or only by `<i>`, and for the whole run by `trajectory`."""
        indexed = {
            int(match[1] if (match := _ACTION.fullmatch(key)) else key): number
            for key, number in value.items()
            if _ACTION.fullmatch(key) or (key.isascii() and key.isdigit())
        }
        own = [index for index, call in enumerate(self._recorded.calls) if not call.private]
        dense = len(own) < len(self._recorded.calls) and sorted(indexed) == list(range(len(own)))
        for index, number in indexed.items():
            if number is not None:
                yield from self._at({"value": number}, monitor, own[index] if dense else index)
        if value.get("trajectory") is not None:
            yield from self._at({"value": value["trajectory"]}, monitor, None)

    def _by_key(self, score: JsonObject) -> Iterator[Placed]:
        for text, number in child(score, "value").items():
            key = MonitorKey.parse(text)
            if key.draft is not None:
                self._notes.lost("verdict on a draft, of which a log without a version has no trace")
                continue
            if key.action is not None and key.action >= self._recorded.turns:
                raise self._refused(f"{text!r} is about an action, of which it has {self._recorded.turns}")
            facts = child(child(score, "metadata"), text)
            verdict = read_verdict_record({"value": number, "explanation": facts.get("explanation")})
            if verdict:
                yield Placed(verdict, key.monitor, False, key.action, key.draw)

    def _by_message(self, records: list[JsonObject], name: str) -> Iterator[Placed]:
        turns = [m for m in self._recorded.messages if m.get("role") == "assistant" and tool_calls(m)]
        turn_of = {str(message["id"]): turn for turn, message in enumerate(turns)}
        for record in records:
            id = record.get("message_id")
            if id is not None and str(id) not in turn_of:
                self._notes.lost("verdict on a draft, of which a log without a version has no trace")
            elif verdict := read_verdict_record(record):
                turn = None if id is None else turn_of[str(id)]
                draw = record.get("draw")
                draw = draw if type(draw) is int and draw > 0 else 1
                yield Placed(verdict, str(record.get("monitor") or name), False, turn, draw)

    def _at(self, record: Any, monitor: str, call: int | None) -> Iterator[Placed]:
        if verdict := read_verdict_record(record):
            yield self._placed(verdict, monitor, False, call)

    def _placed(self, verdict: OldVerdict, monitor: str | None, live: bool, call: int | None) -> Placed:
        calls = self._recorded.calls
        if call is not None and call >= len(calls):
            raise self._refused(f"a monitor judges its call {call}, but it has {len(calls)} calls")
        name = monitor or verdict.monitor or ("live" if live else "post_hoc")
        return Placed(verdict, name, live, None if call is None else calls[call].turn)

    def _refused(self, why: str) -> ValidationError:
        return self._notes.refused(SampleKey.of(self._sample), why)


@dataclass
class _Walk:
    """The verdicts in messages, and to which of the latest calls the next remark belongs."""

    found: list[tuple[OldVerdict, bool, int | None]] = field(
        default_factory=list[tuple[OldVerdict, bool, int | None]]
    )
    group: dict[int, bool] | None = None
    """The calls of the latest turn, and whether each has a live verdict."""
    after_draft: bool = False
    held: OldVerdict | None = None
    dropped: int = 0

    def begin(self, first: int, calls: list[JsonObject], metadata: JsonObject) -> None:
        """A committed turn with calls, of which `first` is the index of the first."""
        self.group, self.after_draft = {}, False
        for offset, call in enumerate(calls):
            by_call = child(child(metadata, "monitor_results_by_tool_call"), call["id"])
            verdict = _of_turn(by_call) or (_of_turn(metadata) if offset == 0 else None)
            if verdict:
                self.found.append((verdict, False, first + offset))
            live = read_verdict_record(child(metadata, "tool_call_monitor_results").get(call["id"]))
            if live:
                self.found.append((live, True, first + offset))
            self.group[first + offset] = live is not None
        if self.held is not None and self._give(self.held):
            self.held = None

    def remark(self, verdict: OldVerdict, *, whole: bool) -> None:
        """A monitor's remark, which follows what it is about."""
        if whole:
            self.found.append((verdict, True, None))
        elif self.after_draft:
            self.dropped += 1
        elif self.group is None:
            self.dropped += self.held is not None
            self.held = verdict
        elif not self._give(verdict):
            self.dropped += 1

    def _give(self, verdict: OldVerdict) -> bool:
        """Gives a verdict to the first call of the turn that has none; the whole turn is judged by it."""
        assert self.group is not None
        call = next((call for call, judged in self.group.items() if not judged), None)
        if call is None:
            return False
        self.found.append((verdict, True, call))
        self.group = dict.fromkeys(self.group, True)
        return True


def _of_turn(metadata: JsonObject) -> OldVerdict | None:
    return read_verdict_record(metadata.get("monitor_result")) or read_verdict_record(
        metadata.get("monitor_skipped")
    )


def _remark(message: JsonObject, metadata: JsonObject) -> OldVerdict | None:
    """The verdict of a message that a monitor left in the conversation."""
    if message.get("role") != "user" or not metadata.get(BOOKKEEPING) or metadata.get("audited"):
        return None
    if stated := read_verdict_record(metadata.get("monitor_result")):
        return stated
    number = metadata.get("sus_score")
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    unread = "the verdict could not be read" if metadata.get("extraction_error") else None
    facts = {
        "monitor_name": metadata.get("monitor_name"),
        "error": metadata.get("monitor_error") or unread,
        "skipped_by_design": metadata.get("monitor_skipped_by_design"),
    }
    return read_verdict_record({"value": number, "explanation": text_of(message), "metadata": facts})


def _aliased(verdict: OldVerdict, alias: str) -> str:
    return f"{verdict.monitor or 'post_hoc'}@{alias}"


def _is_current(value: Mapping[str, Any]) -> bool:
    """Whether all keys are those of today's Score."""
    try:
        return bool([MonitorKey.parse(key) for key in value])
    except ValidationError:
        return False
