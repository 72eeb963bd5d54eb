"""Main and side tasks as an author declares them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

from control_tower.environments.submit_args import NoSubmitArgs, check_submit_args
from control_tower.records.tasks import (
    LEGACY_CATEGORY_MAP,
    FailureType,
    MainTaskData,
    SideTaskCategory,
    SideTaskData,
    TaskCategory,
    side_task_description,
)

if TYPE_CHECKING:
    from inspect_ai.scorer import Scorer

    from control_tower.environments.baseline_snapshot import BaselineSnapshot
    from control_tower.environments.runtime_vars import RuntimeVar
    from control_tower.environments.tools import ToolSpec

__all__ = [
    "LEGACY_CATEGORY_MAP",
    "RED_TEAM_DEV_DIRS",
    "FailureType",
    "FinalDiff",
    "MainTask",
    "MainTaskData",
    "SideTask",
    "SideTaskCategory",
    "SideTaskData",
    "TaskCategory",
    "check_submit_args",
    "read_scorer_files",
]

RED_TEAM_DEV_DIRS = frozenset({"trajs", "straj_development"})
"""Folders of a side task that hold red's work, not the scorer's."""

_SCORER_SUFFIXES = {
    ".py": "python",
    ".js": "javascript",
    ".cjs": "javascript",
    ".mjs": "javascript",
    ".ts": "typescript",
    ".tsx": "typescript",
    ".sh": "bash",
    ".patch": "diff",
}
_VAR_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class FinalDiff:
    """Record what changed below `root` on the agent's machine, from before its first action to its last.

    `exclude` names files or folders that are left out wherever they stand: what is excluded, no monitor
    sees. `max_bytes` bounds the recorded text; head and tail are kept.
    """

    root: str = "/workspace"
    exclude: Sequence[str] = ()
    max_bytes: int = 512_000

    def __post_init__(self) -> None:
        if self.max_bytes < 256:
            raise ValueError(f"final diff: max_bytes must be at least 256, not {self.max_bytes}")
        if not self.root:
            raise ValueError("final diff: root is empty")
        if isinstance(self.exclude, str):
            raise TypeError("final diff: exclude must be a list of names, not one string")


def _no_vars() -> dict[str, RuntimeVar]:
    return {}


@dataclass
class MainTask:
    """Useful work the agent is asked to do.

    `scorer` may be an async function `(state, target) -> Score`, a `linux_scorer`, an Inspect scorer or a
    function that makes one; on the finished object it is an Inspect scorer or None. Giving one imports
    Inspect, which is why the tasks of a folder are loaded only when they are asked for.
    `files` maps a path in the agent's machine to a host file or folder (relative: to the task's folder).

    Raises:
        ValueError: an empty description, a setup script without shebang, an unknown category, a scorer or
            submission model of the wrong kind.
    """

    id: str
    name: str
    environment: str
    description: str
    scorer: Scorer | None = None
    task_category: TaskCategory = "add_feature"
    codebase_name: str = "default"
    setup_script: str | None = None
    files: dict[str, str] | None = None
    final_diff: FinalDiff | None = None
    baseline_snapshot: BaselineSnapshot | None = None
    submit_args: type[BaseModel] = NoSubmitArgs
    short_description: str | None = None
    scorer_description: str | None = None
    coverage: str | None = None
    notes: str | None = None
    setting_description: str | None = None
    root: Path | None = None
    tools: Sequence[ToolSpec] = ()
    private_tools: Sequence[ToolSpec] = ()

    def __post_init__(self) -> None:
        owner = f"main task '{self.id}'"
        if not self.description.strip():
            raise ValueError(f"{owner}: the description is empty")
        self.task_category = LEGACY_CATEGORY_MAP.get(self.task_category, self.task_category)
        _check_choice(owner, "task_category", self.task_category, get_args(TaskCategory))
        _check_setup_script(owner, self.setup_script)
        check_submit_args(self.submit_args, owner)
        scorer = _resolve_scorer(self.scorer, owner)
        self.scorer = None if getattr(scorer, "is_dummy", False) else scorer

    @property
    def path(self) -> Path | None:
        """The task's folder."""
        return self.root

    @property
    def task_description(self) -> str:
        """What the agent is asked, exactly as written."""
        return self.description


@dataclass
class SideTask:
    """Harm that red is asked to do beside the main task.

    `failure_type` is `live` when the scorer can tell at any time, `delayed` when the harm comes after the
    run. `probe` says that the scorer is cheap and changes nothing, so that it may run after every action
    of a live side task. A live scorer may say when the harm happened: `landed_time` (epoch seconds) or
    `landed_action` (index) in its Score's metadata.
    `compatible_main_tasks` None means all; `incompatible_main_tasks` always wins.

    Raises:
        ValueError: as for main tasks; also an empty `compatible_main_tasks` or bad variable names.
        TypeError: a list of main tasks given as one string.
    """

    id: str
    name: str
    environment: str
    goal: str
    scorer: Scorer | None
    failure_type: FailureType
    task_category: SideTaskCategory = "other"
    not_high_stakes: bool = False
    setup_script: str | None = None
    files: dict[str, str] | None = None
    baseline_snapshot: BaselineSnapshot | None = None
    submit_args: type[BaseModel] = NoSubmitArgs
    runtime_vars: Mapping[str, RuntimeVar] = field(default_factory=_no_vars)
    compatible_main_tasks: Iterable[str] | None = None
    incompatible_main_tasks: Iterable[str] = frozenset()
    scoring_details: str | None = None
    attack_surface: str | None = None
    hint: str | None = None
    short_description: str | None = None
    scorer_description: str | None = None
    notes: str | None = None
    root: Path | None = None
    trajs_dir: Path | None = None
    tools: Sequence[ToolSpec] = ()
    private_tools: Sequence[ToolSpec] = ()
    probe: bool = False

    def __post_init__(self) -> None:
        owner = f"side task '{self.id}'"
        if not self.goal.strip():
            raise ValueError(f"{owner}: the goal is empty")
        _check_choice(owner, "failure_type", self.failure_type, get_args(FailureType))
        _check_choice(owner, "task_category", self.task_category, get_args(SideTaskCategory))
        _check_setup_script(owner, self.setup_script)
        check_submit_args(self.submit_args, owner)
        if bad := [name for name in self.runtime_vars if not _VAR_NAME.fullmatch(name)]:
            raise ValueError(f"{owner}: not a variable name: {', '.join(map(repr, bad))}")
        if self.tools:
            raise ValueError(f"{owner}: a side task has private_tools only; tools would mark attack samples")
        self._set_compatibility(owner)
        scorer = _resolve_scorer(self.scorer, owner)
        self.scorer = None if getattr(scorer, "is_dummy", False) else scorer
        if self.trajs_dir is None and self.root is not None:
            self.trajs_dir = self.root / "trajs"

    def _set_compatibility(self, owner: str) -> None:
        for name in ("compatible_main_tasks", "incompatible_main_tasks"):
            if isinstance(getattr(self, name), str):
                raise TypeError(f"{owner}: {name} must be a list of main task ids, not one string")
        self.incompatible_main_tasks = frozenset(self.incompatible_main_tasks)
        if self.compatible_main_tasks is not None:
            self.compatible_main_tasks = frozenset(self.compatible_main_tasks)
            if not self.compatible_main_tasks:
                raise ValueError(f"{owner}: compatible_main_tasks is empty; leave it out to accept all")

    @property
    def path(self) -> Path | None:
        """The task's folder."""
        return self.root

    @property
    def task_description(self) -> str:
        """The goal as written, then the scoring details where there are any."""
        return side_task_description(self.goal, self.scoring_details)

    def accepts_main(self, main_id: str) -> bool:
        """Whether it may be given beside this main task."""
        if main_id in self.incompatible_main_tasks:
            return False
        return self.compatible_main_tasks is None or main_id in self.compatible_main_tasks

    def scorer_source(self) -> str | None:
        """The text of its scorer files, None for a task without folder."""
        return None if self.root is None else read_scorer_files(self.root)


def read_scorer_files(root: Path) -> str:
    """All code and patches below a task folder as fenced blocks, each under its path."""
    return "\n\n".join(
        f"{path.relative_to(root).as_posix()}\n"
        f"```{_SCORER_SUFFIXES[path.suffix]}\n{path.read_text(encoding='utf-8', errors='replace')}\n```"
        for path in _scorer_files(root)
    )


def _scorer_files(folder: Path) -> Iterator[Path]:
    skipped = RED_TEAM_DEV_DIRS | {".venv"}
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and path.name not in skipped:
            yield from _scorer_files(path)
        elif path.is_file() and path.suffix in _SCORER_SUFFIXES:
            yield path


def _check_choice(owner: str, field_name: str, value: object, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{owner}: {field_name} is {value!r}, must be one of {', '.join(choices)}")


def _check_setup_script(owner: str, script: str | None) -> None:
    if script is not None and not script.startswith("#!"):
        raise ValueError(f"{owner}: the setup script must start with a shebang such as #!/bin/bash")


def _resolve_scorer(candidate: Any, owner: str) -> Scorer | None:
    if candidate is None:
        return None
    from control_tower.environments.scorers import as_scorer

    return as_scorer(candidate, owner)
