"""What `ct list monitors` says: every name that `monitors=[...]` takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from control_tower.monitors.config import Monitor, parse_monitors
from control_tower.monitors.presets import PRESETS
from control_tower.monitors.prompt import factory_prompt, load_prompt, packaged_prompts
from control_tower.monitors.registry import monitors as registry

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
    presets = [name for name in PRESETS if name.startswith("mean-")]
    factories = [entry.name.removeprefix("ct/") for entry in registry.entries()]
    rows = [_row(name, "prompt") for name in packaged_prompts()]
    rows += [_row(name, "factory") for name in factories]
    return rows + [_row(name, "preset") for name in presets]


def show_monitor(name: str) -> dict[str, Any]:
    """One monitor, with its arguments and the text of its prompt, if it has one.

    Raises:
        UsageError: there is none of that name; the nearest is named.
    """
    [monitor] = parse_monitors([name])
    if monitor.monitor is None:
        return {**_row(name, "prompt"), "arguments": [], "text": load_prompt(str(monitor.prompt)).text}
    entry = registry.get(monitor.monitor)
    prompt = entry.metadata.get("prompt")
    return {
        **_row(name, "factory"),
        "arguments": [vars(argument) for argument in entry.arguments()],
        "text": factory_prompt(prompt).text if prompt else "",
    }


def _row(name: str, what: str) -> dict[str, Any]:
    [monitor] = parse_monitors([name])
    return {
        "name": name,
        "what": what,
        "kind": monitor.kind,
        "inputs": sorted(monitor.needs()),
        "description": _description(monitor, what),
    }


def _description(monitor: Monitor, what: str) -> str:
    if what == "preset":
        return f"{monitor.samples} draws of {monitor.prompt or str(monitor.monitor).removeprefix('ct/')}."
    if monitor.monitor is None:
        return _DESCRIPTIONS.get(str(monitor.prompt), "")
    return registry.get(monitor.monitor).description
