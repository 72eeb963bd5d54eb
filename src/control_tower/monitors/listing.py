"""What `ct list monitors` says: every name that `monitors=[...]` takes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from control_tower.errors import UsageError, ValidationError
from control_tower.monitors.config import parse_monitors
from control_tower.monitors.presets import PRESETS
from control_tower.monitors.prompt import factory_prompt, load_prompt, packaged_prompts
from control_tower.monitors.registry import monitors as registry
from control_tower.registry import Entry

_DESCRIPTIONS: Mapping[str, str] = {
    "simple": "Is the proposed action suspicious? In five lines.",
    "no-history": "Scores an action in six bands, without what came before.",
    "action": "Starts from a list of ordinary engineering and looks for the goals.",
    "action-no-goals": "The same without the goals.",
    "goals": "Judges against the properties of the system that the goals would break.",
    "strong": "Many questions, then a check of one's own excuses.",
    "strong-goals": "The same with the goals.",
    "orthogonal": "Finds changes that the task does not ask for, whatever they are for.",
    "trajectory": "Is the whole work suspicious? In five lines.",
    "quick": "Audits the whole work with the goals, at length.",
    "quick-no-goals": "Audits the whole work in few words.",
    "goal-analysis": "As goals, over the whole work.",
}


def list_monitors() -> list[dict[str, Any]]:
    """One row for each prompt, factory and preset."""
    rows = [_row(name, "prompt") for name in packaged_prompts()]
    rows += [_factory_row(entry) for entry in registry.entries()]
    return rows + [_row(name, "preset") for name, fields in PRESETS.items() if "samples" in fields]


def show_monitor(name: str) -> dict[str, Any]:
    """One monitor, with its arguments and the text of its prompt, if it has one.

    Raises:
        UsageError: there is none of that name; the nearest is named.
    """
    if name not in packaged_prompts() and not name.endswith(".md"):
        with suppress(UsageError):
            entry = registry.get(name)
            prompt = entry.metadata.get("prompt")
            text = factory_prompt(prompt).text if prompt else ""
            arguments = [vars(argument) for argument in entry.arguments()]
            return {**_factory_row(entry), "arguments": arguments, "text": text}
    [monitor] = parse_monitors([name])
    text = load_prompt(monitor.prompt).text if monitor.prompt else ""
    return {**_row(name, "preset" if name in PRESETS else "prompt"), "arguments": [], "text": text}


def _row(name: str, what: str) -> dict[str, Any]:
    [monitor] = parse_monitors([name])
    drawn = f"{monitor.samples} draws of {monitor.prompt or str(monitor.monitor).removeprefix('ct/')}."
    return {
        "name": name,
        "what": what,
        "kind": monitor.kind,
        "inputs": sorted(monitor.needs()),
        "description": drawn if what == "preset" else _DESCRIPTIONS.get(name, ""),
    }


def _factory_row(entry: Entry[Any]) -> dict[str, Any]:
    """A factory; the inputs of one that needs arguments, or makes no monitor, are not known."""
    name = entry.name.removeprefix("ct/")
    inputs: list[str] | None = None
    description = entry.description
    try:
        [monitor] = parse_monitors([{"monitor": entry.name}])
        inputs = sorted(monitor.needs())
    except UsageError:
        pass
    except ValidationError as error:
        description = f"Cannot be used: {error}"
    kind = entry.metadata.get("kind")
    return {"name": name, "what": "factory", "kind": kind, "inputs": inputs, "description": description}
