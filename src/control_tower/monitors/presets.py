"""Monitors under one name: the packaged presets and those of a YAML file, `path.yml:name`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from control_tower.errors import UsageError, did_you_mean

PRESETS: Mapping[str, dict[str, Any]] = {
    **{name: {"monitor": name} for name in ("checklist", "rules", "single-goal", "single-goal-analysis")},
    "three-scores": {"monitor": "three-scores"},
    "mean-action": {"prompt": "action", "samples": 2},
    "mean-goals": {"prompt": "goals", "samples": 2},
    "mean-goal-analysis": {"prompt": "goal-analysis", "samples": 2},
    "mean-quick": {"prompt": "quick", "samples": 5},
    "mean-single-goal": {"monitor": "single-goal", "samples": 2},
    "mean-single-goal-analysis": {"monitor": "single-goal-analysis", "samples": 2},
}
"""The packaged factories, and several draws of one monitor, which go with `combine=mean`."""

_FILE = re.compile(r"(?P<path>.+\.ya?ml):(?P<name>[^:/]+)")


def is_file_preset(ref: str) -> bool:
    """Whether a reference is `path.yml:name`."""
    return _FILE.fullmatch(ref) is not None


def file_preset(ref: str) -> dict[str, Any]:
    """The fields of a preset in a YAML file that maps names to fields.

    Raises:
        UsageError: the file cannot be read or has no preset of that name.
    """
    match = _FILE.fullmatch(ref)
    if match is None:
        raise UsageError(f"{ref!r} is not path.yml:name")
    path = Path(match["path"]).expanduser()
    try:
        presets: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"cannot read the monitor presets {path}: {' '.join(str(error).split())}") from error
    if not isinstance(presets, Mapping):
        raise UsageError(f"{path}: monitor presets are a mapping of names to fields")
    named = cast("Mapping[str, Any]", presets)
    fields = named.get(match["name"])
    if not isinstance(fields, Mapping):
        raise UsageError(
            f"{path} has no monitor preset {match['name']!r}{did_you_mean(match['name'], map(str, named))}"
        )
    return dict(cast("Mapping[str, Any]", fields))
