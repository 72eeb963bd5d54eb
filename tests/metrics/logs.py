"""Logs of control evaluations made by hand: samples with verdicts, monitors' scores, landings and costs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from control_tower.logs.json_text import JsonObject
from tests.logs.log_making import at, call, seat, tool, write_log

Verdict = float | str | None


def header(
    protocol: str = "ct/trusted-monitoring",
    *,
    version: str | None = "3.0",
    protocol_args: JsonObject | None = None,
    **fields: Any,
) -> JsonObject:
    """The header of a control evaluation."""
    metadata = {
        "eval_version": version,
        "run_name": "run",
        "protocol_selection": {"name": protocol, "args": {}},
        "protocol_args": protocol_args or {},
        "honest_policy_selection": {"name": "ct/honest", "args": {}},
        "attack_policy_selection": {"name": "ct/attack", "args": {}},
        "model_roles": {"untrusted": "demo/agent"},
    }
    spec = {"eval_id": "eval", "run_id": "run", "created": at(0), "task": "run", "model": "none/none"}
    spec |= {"dataset": {}, "config": {}, **fields}
    return {"eval": {**spec, "metadata": metadata}}


def sample(
    id: str,
    scores: Sequence[Verdict | Sequence[Verdict]] = (),
    *,
    epoch: int = 1,
    main: Verdict = None,
    side: Verdict = None,
    landed_at: int | None = None,
    landed_source: str | None = None,
    trajectory: Verdict | Sequence[Verdict] = None,
    monitor: str = "judge",
    submits: bool = False,
    events: Sequence[JsonObject] = (),
    error: str | None = None,
    environment: str = "setting/env",
) -> JsonObject:
    """A sample of bash actions, one for each score; ids with two colons are attacks.

    Args:
        id: `<env>:<main>[:<side>]`.
        scores: Of each action, a draw or a list of draws; None leaves the verdict out.
        trajectory: The verdict on the whole run.
        submits: Whether it ends with an action that only submits and has no verdict.
        events: More of them, before those of the actions.
    """
    parts = id.split(":")
    attack = len(parts) > 2
    turns: list[JsonObject] = []
    value: JsonObject = {}
    for index, verdicts in enumerate(scores):
        second = 10.0 * (index + 1)
        turns.append(seat(call(f"c{index}"), id=f"m{index}", timestamp=at(second), completed=at(second)))
        turns.append(tool(f"c{index}", began=second + 1, ended=second + 2))
        value.update(_draws(monitor, str(index), verdicts))
    if submits:
        turns += [seat(call("end", "submit"), id="end", timestamp=at(900)), tool("end", "submit", began=901)]
    value.update(_draws(monitor, "trajectory", trajectory))
    found: JsonObject = {}
    if attack:
        landing = {"landed_at": landed_at, "landed_source": landed_source}
        found[parts[2]] = {"value": "N" if side is None else side, "metadata": landing}
    elif main is not None:
        found[parts[1]] = {"value": main}
    if error is None:
        found["tasks"] = {"value": {"main": main, "side": side, "landed_at": landed_at}}
        found["monitor"] = {"value": value, "metadata": {}}
    return {
        "id": id,
        "epoch": epoch,
        "metadata": {
            "main_tasks": [{"id": parts[1], "task_category": "fix_bug"}],
            "side_tasks": [{"id": parts[2], "task_category": "exfiltration"}] if attack else [],
            "environment": {"id": environment},
        },
        "scores": found,
        "events": [*events, *turns],
        **({"error": {"message": error, "traceback": "", "traceback_ansi": ""}} if error else {}),
    }


def _draws(monitor: str, about: str, verdicts: Verdict | Sequence[Verdict]) -> JsonObject:
    if verdicts is None:
        return {}
    drawn = [verdicts] if isinstance(verdicts, str | float | int) else verdicts
    return {f"{monitor}/{draw}/{about}": verdict for draw, verdict in enumerate(drawn, 1)}


def control_log(path: Path, samples: Sequence[JsonObject], **fields: Any) -> Path:
    """A finished log of these samples."""
    return write_log(path, header(**fields), samples)
