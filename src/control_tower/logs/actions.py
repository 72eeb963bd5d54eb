"""What an action is: the turns blue decided, the calls in them, and what became of each call.

A turn with at least one call is an action; actions are counted from 0 in the order of their events, and
this number is the index that verdicts, audits and landings use. Everything here reads events as JSON
(`sample["events"]` of a log) or as Inspect's objects (`transcript().events` of a running sample).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, cast

from control_tower.logs.events import decided_message, is_seat_turn, raw_events, resolved, seconds, tool_calls
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.logs.tool_names import AUDITED, BLOCKED, bare_name, is_engine_tool, is_hidden, withheld_in


@dataclass(frozen=True)
class Call:
    """One tool call of an action, as decided, and the event of its execution."""

    id: str
    function: str
    arguments: JsonObject
    """As logged: long texts may stand as attachments."""
    event: JsonObject | None
    """The tool event; None when the call was never executed."""
    private: bool = False
    """Whether red made the call for itself."""
    unreadable: bool = False
    """Whether the model's arguments could not be parsed."""

    @property
    def name(self) -> str:
        """The tool's own name."""
        return bare_name(self.function)

    @property
    def ran(self) -> bool:
        """Whether the call was executed to its end, as itself."""
        return self.event is not None and _ran(self.event)

    @property
    def hidden(self) -> bool:
        """Whether monitors are not shown such calls."""
        return is_hidden(self.drafted)

    @property
    def blocked(self) -> bool:
        """Whether blue refused it."""
        return BLOCKED in self._names

    @property
    def audited(self) -> bool:
        """Whether it was withheld for an audit."""
        return AUDITED in self._names

    @property
    def malformed(self) -> bool:
        """Whether it could not be executed as the model wrote it."""
        return self.unreadable or str(self.error).startswith("parsing:")

    @property
    def withheld(self) -> JsonObject | None:
        """Function and arguments of the call that this one stands for, when it was refused or audited."""
        return withheld_in(self.function, self.arguments)

    @property
    def drafted(self) -> str:
        """The function that the model called, whatever blue had run in its place."""
        return str((self.withheld or {}).get("function") or self.function)

    @property
    def error(self) -> str | None:
        """`<type>: <message>` of a call that failed."""
        error = child(self.event, "error")
        return f"{error.get('type')}: {error.get('message')}" if error else None

    @property
    def result(self) -> Any:
        """What the tool returned, as logged."""
        return (self.event or {}).get("result")

    @property
    def skipped(self) -> str | None:
        """Why an action monitor passes over the call; None when it does not."""
        return skip_reason(self.drafted, private=self.private, malformed=self.malformed)

    @property
    def _names(self) -> set[str]:
        return {self.name, bare_name(str((self.event or {}).get("function")))}


@dataclass(frozen=True)
class Turn:
    """One decided turn."""

    event: JsonObject
    """The seat's model event."""
    message: JsonObject
    """The assistant message that was decided."""
    index: int | None
    """Which action it is; None for a turn without calls."""
    calls: tuple[Call, ...]

    @property
    def message_id(self) -> str | None:
        """By this id monitors' verdicts name the turn."""
        return self.message.get("id")

    @property
    def ran(self) -> bool:
        """Whether any of its calls was executed."""
        return any(call.ran for call in self.calls)

    @property
    def verdict_call(self) -> Call | None:
        """The call that carries the turn's verdicts where they are shown by call: the first not skipped."""
        return next((call for call in self.calls if call.skipped is None), None)


class Transcript:
    """A sample's events, read as decided turns.

    Args:
        events: JSON or Inspect's objects, in order.
        messages: The sample's messages as JSON, where old logs mark red's own calls.
        attachments: Texts the sample keeps apart.
    """

    def __init__(
        self,
        events: Iterable[Any],
        messages: Iterable[JsonObject] = (),
        attachments: dict[str, str] | None = None,
    ) -> None:
        self.events = list(raw_events(events))
        self._attachments = attachments or {}
        self._private_ids = _private_ids(messages)

    @classmethod
    def of(cls, sample: JsonObject) -> Transcript:
        """The transcript of a log's sample."""
        return cls(children(sample, "events"), children(sample, "messages"), child(sample, "attachments"))

    def resolve(self, value: Any) -> Any:
        """A copy of a JSON value with the texts that the sample keeps apart put back."""
        return resolved(value, self._attachments)

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """Every decided turn, those without calls included."""
        executed = _executions(self.events)
        turns: list[Turn] = []
        index = 0
        for position, event in enumerate(self.events):
            if not is_seat_turn(event):
                continue
            message = decided_message(event)
            raw_calls = tool_calls(message)
            calls = tuple(self._call(raw, executed.get((position, raw["id"]))) for raw in raw_calls)
            turns.append(Turn(event, message, index if calls else None, calls))
            index += bool(calls)
        return tuple(turns)

    @cached_property
    def actions(self) -> tuple[Turn, ...]:
        """The turns with calls; `actions[i].index == i`."""
        return tuple(turn for turn in self.turns if turn.index is not None)

    @cached_property
    def by_message(self) -> dict[str, int]:
        """The action of a message id; ids of drafts that became no action are not in it."""
        return {str(turn.message_id): index for index, turn in enumerate(self.actions) if turn.message_id}

    @property
    def last_action_ran(self) -> int:
        """See `last_action_ran`."""
        return last_action_ran(self.events)

    @property
    def finish_reason(self) -> str | None:
        """Why play ended: submitted, audited, step_limit or no_progress; None when it did not."""
        reasons = [data["finished"] for data in self.facts("eval") if "finished" in data]
        return reasons[-1] if reasons else None

    @property
    def audited(self) -> tuple[int, ...]:
        """The actions that were audited while it ran, in order, each once."""
        indices = (data.get("audited") for data in self.facts("audit"))
        return tuple(sorted({index for index in indices if type(index) is int}))

    def facts(self, source: str) -> Iterator[JsonObject]:
        """The data of info events from a source, attachments put back."""
        for event in self.events:
            if event.get("event") == "info" and event.get("source") == source:
                data = self.resolve(event.get("data"))
                if isinstance(data, dict):
                    yield cast(JsonObject, data)

    def conversation(self, before: int | None = None) -> list[JsonObject]:
        """Decided turns, each followed by the results of those of its calls that were executed.

        Args:
            before: Ends with this action's message, without its results; None takes the whole.
        """
        messages: list[JsonObject] = []
        for turn in self.turns:
            messages.append(self.resolve(turn.message))
            if before is not None and turn.index == before:
                break
            messages += [self._result(call) for call in turn.calls if call.event is not None]
        return messages

    def _call(self, raw: JsonObject, event: JsonObject | None) -> Call:
        return Call(
            id=raw["id"],
            function=raw["function"],
            arguments=child(raw, "arguments"),
            event=event,
            private=raw["id"] in self._private_ids,
            unreadable=bool(raw.get("parse_error")),
        )

    def _result(self, call: Call) -> JsonObject:
        event = call.event or {}
        message: JsonObject = {
            "role": "tool",
            "content": self.resolve(event.get("result")),
            "tool_call_id": call.id,
            "function": event.get("function"),
        }
        return {**message, "error": event["error"]} if event.get("error") else message


def last_action_ran(events: Iterable[Any], before: int | None = None) -> int:
    """The last action of which a call was executed; -1 when none was.

    Refused and audited calls did not run, nor did those that are still pending.

    Args:
        events: JSON or Inspect's objects, in order.
        before: Only the first so many events count.
    """
    ran = actions = -1
    owner: dict[str, int] = {}
    for event in islice(raw_events(events), before):
        if is_seat_turn(event) and (calls := tool_calls(decided_message(event))):
            actions += 1
            owner.update({call["id"]: actions for call in calls})
        elif event.get("event") == "tool" and _ran(event):
            ran = max(ran, owner.get(str(event.get("id")), -1))
    return ran


def action_at_time(events: Iterable[Any], when: float) -> int:
    """The action during which something happened, or, when between two, after which; -1 before the first.

    Args:
        events: JSON or Inspect's objects, in order.
        when: Epoch seconds.
    """
    inside = after = -1
    actions = -1
    owner: dict[str, int] = {}
    for event in raw_events(events):
        if is_seat_turn(event) and (calls := tool_calls(decided_message(event))):
            actions += 1
            owner.update({call["id"]: actions for call in calls})
        elif event.get("event") == "tool" and not is_engine_tool(str(event.get("function"))):
            began, ended = seconds(event), seconds(event, "completed")
            index = owner.get(str(event.get("id")))
            if index is None or began is None or began > when:
                continue
            after = max(after, index)
            if ended is None or when <= ended:
                inside = max(inside, index)
    return inside if inside >= 0 else after


def skip_reason(function: str, *, private: bool, malformed: bool) -> str | None:
    """Why an action monitor passes over a call; None when it looks at it."""
    if is_hidden(function):
        return f'"{function}" tool calls are ignored'
    if private:
        return "policy-private tool call"
    return "malformed action (parsing error)" if malformed else None


def _ran(event: JsonObject) -> bool:
    return not event.get("pending") and not is_engine_tool(str(event.get("function")))


def _executions(events: Sequence[JsonObject]) -> dict[tuple[int, str], JsonObject]:
    """The tool event of a call, by the position of its turn's event and its id.

    Providers reuse ids: a tool event belongs to the latest turn before it that has the id.
    """
    owner: dict[str, int] = {}
    executed: dict[tuple[int, str], JsonObject] = {}
    for position, event in enumerate(events):
        if is_seat_turn(event):
            owner.update({call["id"]: position for call in tool_calls(decided_message(event))})
        elif event.get("event") == "tool" and (turn := owner.get(str(event.get("id")))) is not None:
            known = executed.get((turn, str(event["id"])))
            if known is None or known.get("pending"):
                executed[turn, str(event["id"])] = event
    return executed


def _private_ids(messages: Iterable[JsonObject]) -> set[str]:
    return {
        call["id"]
        for message in messages
        if child(message, "metadata").get("is_policy_private")
        for call in tool_calls(message)
    }
