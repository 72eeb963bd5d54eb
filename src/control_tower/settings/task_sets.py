"""Task sets: JSONL files that name the samples of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from control_tower.errors import UsageError, did_you_mean
from control_tower.settings.discovery import Setting, load_settings

_KEYS = frozenset({"env", "main_task", "side_task"})


@dataclass(frozen=True)
class TaskRecord:
    """One sample: an environment and the ids of its tasks."""

    env: str
    main_tasks: tuple[str, ...] = ()
    side_tasks: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, frozenset[str], frozenset[str]]:
        """Equal for records of the same sample."""
        return self.env, frozenset(self.main_tasks), frozenset(self.side_tasks)


@dataclass(frozen=True)
class TaskSet:
    """A file's records."""

    path: Path
    setting: str | None
    """The setting that ships it, None for a user's own file."""
    records: tuple[TaskRecord, ...]

    @property
    def name(self) -> str:
        """The file's name without ending."""
        return self.path.stem


def load_task_set(name: str) -> TaskSet:
    """The task set of a name, searched in every setting, else of a path.

    Raises:
        UsageError: no such set or file, or a faulty line.
    """
    for file, setting in shipped_task_sets():
        if name in (file.stem, file.name):
            return TaskSet(file, setting, read_task_file(file))
    path = Path(name)
    if path.is_file():
        return TaskSet(path, None, read_task_file(path))
    names = [file.stem for file, _ in shipped_task_sets()]
    raise UsageError(f"no task set or file '{name}'{did_you_mean(name, names)}")


def shipped_task_sets() -> list[tuple[Path, str]]:
    """The files of all settings with the setting's name; those that start with `_` are hidden."""
    return [
        (file, setting.name)
        for setting in load_settings().values()
        for folder in _task_set_folders(setting)
        for file in sorted(folder.glob("*.jsonl"))
        if not file.name.startswith("_")
    ]


def _task_set_folders(setting: Setting) -> list[Path]:
    """`task_sets/` of the setting's folder; for a setting of a package, beside its environments."""
    if setting.path is not None:
        candidates = [setting.path]
    else:
        paths: list[Any] = [getattr(env, "path", None) for env in setting.environments.values()]
        candidates = list(dict.fromkeys(Path(path).parent for path in paths if path is not None))
    return [folder / "task_sets" for folder in candidates if (folder / "task_sets").is_dir()]


def read_task_file(path: Path) -> tuple[TaskRecord, ...]:
    """The records of a file.

    Raises:
        UsageError: a line is no record, or a combination is there twice.
    """
    records: list[TaskRecord] = []
    seen: dict[object, int] = {}
    for number, line in _lines(path):
        record = _parse(line, f"{path}:{number}")
        if record.key in seen:
            raise UsageError(f"{path}:{number}: the same combination as line {seen[record.key]}")
        seen[record.key] = number
        records.append(record)
    if not records:
        raise UsageError(f"{path}: has no records")
    return tuple(records)


def merge_records(sets: Iterable[Sequence[TaskRecord]]) -> list[TaskRecord]:
    """The records of several files; the first occurrence of a combination wins."""
    merged: dict[object, TaskRecord] = {}
    for records in sets:
        for record in records:
            merged.setdefault(record.key, record)
    return list(merged.values())


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    return ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip())


def _parse(line: str, where: str) -> TaskRecord:
    try:
        value: object = json.loads(line)
    except json.JSONDecodeError as error:
        raise UsageError(f"{where}: not JSON: {error.msg}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{where}: must be an object with env, main_task, side_task")
    fields = cast(dict[str, Any], value)
    if unknown := sorted(set(fields) - _KEYS):
        raise UsageError(f"{where}: unknown key {unknown[0]!r}{did_you_mean(unknown[0], sorted(_KEYS))}")
    env: object = fields.get("env")
    if not isinstance(env, str) or not env:
        raise UsageError(f"{where}: env must name an environment")
    mains = _ids(fields, "main_task", where)
    sides = _ids(fields, "side_task", where)
    if not mains and not sides:
        raise UsageError(f"{where}: needs main_task or side_task")
    return TaskRecord(env, mains, sides)


def _ids(fields: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    if key not in fields:
        return ()
    value: object = fields[key]
    ids = cast(list[object], value) if isinstance(value, list) else [value]
    names = tuple(item for item in ids if isinstance(item, str) and item)
    if not ids or len(names) != len(ids):
        raise UsageError(f"{where}: {key} must be a task id or a non-empty list of them")
    return names
