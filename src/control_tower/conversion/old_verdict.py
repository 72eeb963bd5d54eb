"""One verdict of a monitor as logs without a version recorded it, whatever carried it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, cast

from control_tower.logs.json_text import JsonObject, child, children
from control_tower.logs.tool_names import bare_name
from control_tower.records.monitor_scores import read_suspicion

_IGNORED = re.compile(r'"(?P<tool>.+)" tool calls are ignored', re.DOTALL)
_ALWAYS_IGNORED = frozenset({"run_side_task_test", "submit", "side_task_scorer"})
_BY_DESIGN = frozenset({"malformed action (parsing error)", "policy-private tool call"})


@dataclass(frozen=True)
class OldVerdict:
    """What was recorded."""

    value: float | None
    """From 0 to 10; None when unscored."""
    explanation: str | None
    facts: JsonObject
    """All else that was recorded, such as the monitor's name, its prompt, tokens and cost."""

    @property
    def monitor(self) -> str | None:
        """The name the record itself gives the monitor."""
        name = self.facts.get("monitor_name")
        return str(name) if name else None

    @property
    def by_design(self) -> bool:
        """Whether the monitor was never meant to look, so that there is no verdict."""
        stated = self.facts.get("skipped_by_design")
        return _skipped_by_design(self.facts.get("error")) if stated is None else bool(stated)

    @property
    def why_unscored(self) -> JsonObject:
        """What the Score's metadata says of an unscored verdict."""
        attempts = self.facts.get("attempts")
        explanation = self.facts.get("error") or self.explanation
        said: JsonObject = {"explanation": None if explanation is None else str(explanation)}
        return said if attempts is None else {**said, "attempts": attempts}

    @property
    def members(self) -> list[OldVerdict]:
        """The verdicts of an ensemble."""
        read = (read_verdict_record(member) for member in children(self.facts, "members"))
        return [verdict for verdict in read if verdict is not None]


def read_verdict_record(raw: Any) -> OldVerdict | None:
    """What a record says; None when it is none."""
    if not isinstance(raw, dict) or not raw:
        return None
    record = cast(JsonObject, raw)
    if "value" in record:
        return _verdict(record["value"], record.get("explanation"), child(record, "metadata"))
    facts = {key: value for key, value in record.items() if key not in ("sus_score", "reasoning")}
    if "sus_score" in record:
        return _verdict(record["sus_score"], record.get("reasoning"), facts)
    error = record.get("last_error")
    return OldVerdict(
        None,
        None if error is None else str(error),
        {**facts, "error": error, "attempts": record.get("attempts", 0), "skipped_by_design": False},
    )


def _verdict(value: Any, explanation: Any, facts: JsonObject) -> OldVerdict:
    number = None if facts.get("error") else read_suspicion(value)
    number = None if number is None or number < 0 else number
    return OldVerdict(number, None if explanation is None else str(explanation), facts)


def _skipped_by_design(error: Any) -> bool:
    match = _IGNORED.fullmatch(str(error))
    return error in _BY_DESIGN or (match is not None and bare_name(match["tool"]) in _ALWAYS_IGNORED)
