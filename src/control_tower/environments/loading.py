"""Tasks from folders: `main_tasks/<id>` and `side_tasks/<id>`, each imported when it is asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

from control_tower.environments.modules import load_module_from_path
from control_tower.environments.submit_args import NoSubmitArgs
from control_tower.environments.task import (
    LEGACY_CATEGORY_MAP,
    FailureType,
    FinalDiff,
    MainTask,
    SideTask,
    SideTaskCategory,
    TaskCategory,
)
from control_tower.environments.task_helpers import is_empty_task, is_idea_phase
from control_tower.environments.yaml_metadata import MetadataError, load_metadata_yaml, resolve_templates

if TYPE_CHECKING:
    from inspect_ai.scorer import Scorer

    from control_tower.environments.baseline_snapshot import BaselineSnapshot
    from control_tower.environments.runtime_vars import RuntimeVar
    from control_tower.environments.tools import ToolSpec


def ignore_task_folder(path: Path) -> bool:
    """Whether an entry of `main_tasks/` or `side_tasks/` is no task: a file, private, an idea, or empty."""
    if not path.is_dir() or path.name.startswith("_"):
        return True
    return is_idea_phase(path) or is_empty_task(path)


def load_main_task_from_path(path: Path, env_id: str | None = None) -> MainTask:
    """The main task of a folder: `config` of its `__init__.py`, else `info.yml` and `scorer.py`.

    Args:
        path: the task's folder; it may stand outside any environment.
        env_id: the environment it is loaded for; by default the folder two above.

    Raises:
        FileNotFoundError: no such folder.
        TypeError: `config` is no MainTask.
        ValueError: the folder has no task, or `info.yml` lacks `description` or `task_category`.
        Whatever the task's own modules raise.
    """
    path = _task_folder(path)
    config = _imported_config(path)
    if config is None:
        if not (path / "scorer.py").is_file():
            raise ValueError(f"{path}: needs `config` in __init__.py, or info.yml and scorer.py")
        from control_tower.environments.scorers import find_scorer

        scorer = find_scorer(load_module_from_path(path / "scorer.py"))
        config = make_main_task_from_path(path, scorer=scorer)
    if not isinstance(config, MainTask):
        raise TypeError(f"{path}: `config` is a {type(config).__name__}, not a MainTask")
    return config if env_id is None else dataclasses.replace(config, environment=env_id)


def load_side_task_from_path(path: Path, env_id: str | None = None) -> SideTask:
    """The side task of a folder: `config` of its `__init__.py`.

    Args and errors are those of `load_main_task_from_path`.
    """
    path = _task_folder(path)
    config = _imported_config(path)
    if config is None:
        raise ValueError(f"{path}: needs `config = make_side_task_from_path(...)` in __init__.py")
    if not isinstance(config, SideTask):
        raise TypeError(f"{path}: `config` is a {type(config).__name__}, not a SideTask")
    return config if env_id is None else dataclasses.replace(config, environment=env_id)


def _task_folder(path: Path) -> Path:
    path = Path(path).resolve()
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: no such task folder")
    return path


def _imported_config(path: Path) -> object | None:
    if not (path / "__init__.py").is_file():
        return None
    return vars(load_module_from_path(path)).get("config")


def make_main_task_from_path(
    path: str | Path,
    scorer: Scorer | None,
    codebase_name: str = "default",
    setup_script: str | None = None,
    files: Mapping[str, str] | None = None,
    final_diff: FinalDiff | None = None,
    baseline_snapshot: BaselineSnapshot | None = None,
    submit_args: type[BaseModel] = NoSubmitArgs,
    tools: Sequence[ToolSpec] = (),
    private_tools: Sequence[ToolSpec] = (),
    environment: str | None = None,
) -> MainTask:
    """A main task whose texts are those of the folder's `info.yml` and whose id is the folder's name.

    `setup_script` is the script's text, by default that of `setup.sh`; `environment` is by default the
    name of the folder two above.

    Raises:
        ValueError: `info.yml` lacks `description` or `task_category`, or holds something unusable.
    """
    folder = Path(path).resolve()
    info = resolve_templates(load_metadata_yaml(folder / "info.yml"), folder)
    for key in ("description", "task_category"):
        if not info.get(key):
            raise MetadataError(f"{folder / 'info.yml'}: {key} is missing")
    return MainTask(
        id=folder.name,
        name=str(info.get("name") or folder.name),
        environment=environment or folder.parent.parent.name,
        description=info["description"],
        scorer=scorer,
        task_category=_category(folder, info["task_category"]),
        codebase_name=codebase_name,
        setup_script=_setup_script(folder, setup_script),
        files=None if files is None else dict(files),
        final_diff=final_diff,
        baseline_snapshot=baseline_snapshot,
        submit_args=submit_args,
        short_description=info.get("short_description"),
        scorer_description=info.get("scorer_description"),
        coverage=info.get("coverage"),
        notes=info.get("notes"),
        root=folder,
        tools=tuple(tools),
        private_tools=tuple(private_tools),
    )


def make_side_task_from_path(
    path: str | Path,
    scorer: Scorer | None,
    failure_type: FailureType,
    task_category: SideTaskCategory,
    submit_args: type[BaseModel] = NoSubmitArgs,
    not_high_stakes: bool = False,
    baseline_snapshot: BaselineSnapshot | None = None,
    tools: Sequence[ToolSpec] = (),
    private_tools: Sequence[ToolSpec] = (),
    compatible_main_tasks: Iterable[str] | None = None,
    incompatible_main_tasks: Iterable[str] = (),
    environment: str | None = None,
    files: Mapping[str, str] | None = None,
    *,
    runtime_vars: Mapping[str, RuntimeVar] | None = None,
    hint: str | None = None,
    probe: bool = False,
) -> SideTask:
    """A side task whose goal is the folder's `docs/goal.md`, exactly as written.

    Further texts, each optional: `docs/scoring_details.md`, `docs/attack_surface.md`, `docs/scorer.md`
    (the scorer's description) and `name`, `short_description`, `notes` of `info.yml`.

    Raises:
        FileNotFoundError: `docs/goal.md` is missing.
        TypeError: main tasks given as one string.
        ValueError: the goal is empty, or `info.yml` cannot be used.
    """
    folder = Path(path).resolve()
    docs = folder / "docs"
    info = load_metadata_yaml(folder / "info.yml")
    return SideTask(
        id=folder.name,
        name=str(info.get("name") or folder.name),
        environment=environment or folder.parent.parent.name,
        goal=(docs / "goal.md").read_text(encoding="utf-8"),
        scorer=scorer,
        failure_type=failure_type,
        task_category=task_category,
        not_high_stakes=not_high_stakes,
        setup_script=_setup_script(folder, None),
        files=None if files is None else dict(files),
        baseline_snapshot=baseline_snapshot,
        submit_args=submit_args,
        runtime_vars=dict(runtime_vars or {}),
        compatible_main_tasks=compatible_main_tasks,
        incompatible_main_tasks=incompatible_main_tasks,
        scoring_details=_optional_text(docs / "scoring_details.md"),
        attack_surface=_optional_text(docs / "attack_surface.md"),
        hint=hint,
        short_description=info.get("short_description"),
        scorer_description=_optional_text(docs / "scorer.md"),
        notes=info.get("notes"),
        root=folder,
        tools=tuple(tools),
        private_tools=tuple(private_tools),
        probe=probe,
    )


def _category(folder: Path, value: Any) -> TaskCategory:
    category: Any = LEGACY_CATEGORY_MAP.get(str(value), value)
    if category not in get_args(TaskCategory):
        raise MetadataError(
            f"{folder / 'info.yml'}: task_category is {value!r}, "
            f"must be one of {', '.join(get_args(TaskCategory))}"
        )
    return category


def _setup_script(folder: Path, given: str | None) -> str | None:
    return given if given is not None else _optional_text(folder / "setup.sh")


def _optional_text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
