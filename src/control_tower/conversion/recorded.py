"""What a sample without decided turns recorded: the turns in its messages, and what belongs to none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from control_tower.conversion.ids import derived_id
from control_tower.logs.events import tool_calls
from control_tower.logs.json_text import JsonObject, child, children

BOOKKEEPING = "is_monitor_result"
"""Metadata of messages that were never part of the conversation: discarded drafts, monitors' remarks."""

VERDICT_KEYS = frozenset(
    {"monitor_result", "monitor_skipped", "monitor_results_by_tool_call", "tool_call_monitor_results"}
)
"""Metadata of assistant messages that holds monitors' verdicts."""


@dataclass(frozen=True)
class RecordedCall:
    """One committed call; its place in the list of all is the index by which old verdicts name it."""

    id: str
    turn: int
    private: bool
    """Whether red made it for itself."""


@dataclass
class Recorded:
    """The conversation of a sample."""

    messages: list[JsonObject] = field(default_factory=list[JsonObject])
    """In order, the system message and the task first; verdicts are taken out of their metadata."""
    calls: list[RecordedCall] = field(default_factory=list[RecordedCall])
    turns: int = 0
    """Assistant messages with calls."""
    audited: list[int] = field(default_factory=list[int])
    """Turns after which the sample was audited; -1 before the first, `turns` for a draft at the end."""
    left_out: list[JsonObject] = field(default_factory=list[JsonObject])
    """Messages that are not of the conversation."""
    verdicts: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    """What was taken out of the metadata of messages, by their id."""


def committed_messages(sample: JsonObject) -> list[JsonObject]:
    """A sample's messages, then those calls of its output that no message has."""
    messages = children(sample, "messages")
    seen = {call["id"] for message in messages if not _dropped(message) for call in tool_calls(message)}
    for choice in children(child(sample, "output"), "choices")[:1]:
        message = child(choice, "message")
        if calls := [call for call in tool_calls(message) if call["id"] not in seen]:
            messages = [*messages, {**message, "role": "assistant", "tool_calls": calls}]
    return messages


def read_recorded(sample: JsonObject, task: str, seed: str) -> Recorded:
    """The conversation of a sample.

    Args:
        sample: The old sample.
        task: The task's text, where no user message says it.
        seed: From which ids of messages are derived that have none of their own.
    """
    found = Recorded()
    messages = committed_messages(sample)
    system = next((m for m in messages if m.get("role") == "system"), None)
    prompt = next((m for m in messages if m.get("role") == "user" and not _dropped(m)), None)
    found.messages = [m for m in (system, prompt or {"role": "user", "content": task}) if m is not None]
    owners: set[str] = set()
    draft = False
    for message in messages:
        role, calls = message.get("role"), tool_calls(message)
        if role == "user" and child(message, "metadata").get("audited"):
            found.audited.append(found.turns if draft else found.turns - 1)
        if message is system or message is prompt:
            continue
        if _dropped(message):
            draft = draft or (role == "assistant" and bool(calls))
            found.left_out.append(message)
        elif role == "assistant" and calls:
            private = bool(child(message, "metadata").get("is_policy_private"))
            found.calls += [RecordedCall(call["id"], found.turns, private) for call in calls]
            owners |= {call["id"] for call in calls}
            found.turns += 1
            draft = False
            found.messages.append(message)
        elif (role == "tool" and message.get("tool_call_id") in owners) or (
            role != "tool" and _says(message)
        ):
            found.messages.append(message)
        else:
            found.left_out.append(message)
    _name_messages(found, seed)
    return found


def text_of(message: JsonObject) -> str:
    """The text of a message, without other parts."""
    content: Any = message.get("content")
    if isinstance(content, list):
        parts = [cast(JsonObject, part) for part in cast("list[Any]", content) if isinstance(part, dict)]
        return "\n".join(str(part["text"]) for part in parts if part.get("type") == "text")
    return content if isinstance(content, str) else ""


def _dropped(message: JsonObject) -> bool:
    return bool(child(message, "metadata").get(BOOKKEEPING))


def _says(message: JsonObject) -> bool:
    content = message.get("content")
    return bool(content.strip() if isinstance(content, str) else content)


def _name_messages(found: Recorded, seed: str) -> None:
    """Gives each message an id of its own, and takes verdicts out of its metadata."""
    used: set[str] = set()
    for position, message in enumerate(found.messages):
        id = message.get("id")
        if not isinstance(id, str) or not id or "/" in id or id in used:
            id = derived_id("message", seed, position)[:22]
        used.add(id)
        metadata = child(message, "metadata")
        rest = {key: value for key, value in metadata.items() if key not in VERDICT_KEYS}
        if rest != metadata:
            found.verdicts[id] = {key: metadata[key] for key in metadata if key in VERDICT_KEYS}
        found.messages[position] = {**message, "id": id, **({"metadata": rest or None} if metadata else {})}
