"""Committed calls: what a sample's messages say was executed, one by one, and the verdicts' place on them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from control_tower.errors import ValidationError
from control_tower.logs.actions import Transcript, skip_reason
from control_tower.logs.events import tool_calls
from control_tower.logs.json_text import JsonObject, child, children

T = TypeVar("T")


@dataclass(frozen=True)
class CommittedCall:
    """One call of the sample's messages, in their order."""

    id: str
    function: str
    arguments: JsonObject
    result: JsonObject | None
    """The tool message that answers it."""
    ran: bool
    """Whether a tool event says that it was executed."""
    private: bool
    """Whether red made it for itself."""
    action: int | None
    """The action it belongs to; None for calls that no decided turn has."""
    carries_verdict: bool
    """Whether verdicts on that action are shown at this call."""
    skipped: str | None
    """Why monitors pass over it, or that it is reviewed with another call of its turn."""


def committed_calls(sample: JsonObject) -> list[CommittedCall]:
    """The calls of a sample: of its messages, then of its output where the messages lack them.

    Turns that were proposed and dropped are left out.

    Raises:
        ValidationError: The sample holds calls but no events that could say which ran.
    """
    transcript = Transcript.of(sample)
    events = transcript.events
    executed = {str(event.get("id")) for event in events if event.get("event") == "tool"}
    owners = _by_id((call.id, turn) for turn in transcript.actions for call in turn.calls)
    answers = (message for message in children(sample, "messages") if message.get("role") == "tool")
    results = _by_id((str(answer.get("tool_call_id")), answer) for answer in answers)
    calls: list[CommittedCall] = []
    for message, raw in _raw_calls(sample):
        turn, result = _next(owners, raw["id"]), _next(results, raw["id"])
        private = bool(child(message, "metadata").get("is_policy_private"))
        reason = skip_reason(raw["function"], private=private, malformed=_malformed(raw, result))
        carries = turn is not None and turn.verdict_call is not None and turn.verdict_call.id == raw["id"]
        if reason is None and turn is not None and not carries:
            reason = "reviewed with another call of its turn"
        calls.append(
            CommittedCall(
                id=raw["id"],
                function=raw["function"],
                arguments=child(raw, "arguments"),
                result=result,
                ran=raw["id"] in executed,
                private=private,
                action=turn.index if turn else None,
                carries_verdict=carries,
                skipped=reason,
            )
        )
    if calls and not executed and not transcript.turns:
        raise ValidationError(
            f"sample {sample.get('id')}: holds calls but neither tool events nor decided turns,"
            " so it cannot say which calls ran"
        )
    return calls


def _raw_calls(sample: JsonObject) -> Iterator[tuple[JsonObject, JsonObject]]:
    seen: set[str] = set()
    for message in children(sample, "messages"):
        dropped = child(message, "metadata").get("is_monitor_result")
        if message.get("role") == "assistant" and not dropped:
            for call in tool_calls(message):
                seen.add(call["id"])
                yield message, call
    for choice in children(child(sample, "output"), "choices")[:1]:
        message = child(choice, "message")
        for call in tool_calls(message):
            if call["id"] not in seen:
                yield message, call


def _by_id(items: Iterable[tuple[str, T]]) -> dict[str, deque[T]]:
    """Items of each id in their order: providers reuse ids, so the nth call of an id has its nth item."""
    found: defaultdict[str, deque[T]] = defaultdict(deque)
    for id, item in items:
        found[id].append(item)
    return found


def _next(items: dict[str, deque[T]], id: str) -> T | None:
    return items[id].popleft() if items.get(id) else None


def _malformed(call: JsonObject, result: JsonObject | None) -> bool:
    return bool(call.get("parse_error")) or child(result, "error").get("type") == "parsing"
