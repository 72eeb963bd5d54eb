"""What decides the result of a job, and nothing else: the same work has the same id everywhere."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
from collections.abc import Collection, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import control_tower
from control_tower.environments.environment import env_path, env_score_main_on_attack
from control_tower.errors import OperationError
from control_tower.evals.dataset import PlayedSample
from control_tower.evals.plan import RunPlan, Side
from control_tower.evals.run_config import Stream
from control_tower.evals.selection import SelectedEnvironment
from control_tower.fleet.keys import job_id
from control_tower.monitors.config import monitors_in, sources_of
from control_tower.settings.discovery import load_settings

_AFTER_PLAY = frozenset({"cli", "fleet", "viewer", "client", "agent_runs"})
"""Packages of ours that no sample depends on."""

_NO_CODE = frozenset({".git", ".venv", "__pycache__", "node_modules"})
"""Names of folders that hold no code of a setting, wherever they are."""

FOR_PEOPLE = re.compile(r"docs|tests|\.env|(README|CHANGELOG).*")
"""Names, at the top of a setting, of what no sample depends on; `.env` holds keys."""


def job_ids(plan: RunPlan) -> Iterator[tuple[PlayedSample, int, str]]:
    """Each sample of a run at each epoch with its job id, epoch by epoch.

    Args:
        plan: The run, its models bound.

    Raises:
        OperationError: Code that decides results cannot be read.
    """
    codes: dict[str, str] = {}
    runs: dict[Stream, str] = {}
    for env_id, one in plan.environments.items():
        environment = {
            "id": env_id,
            "args": None if one.args is None else one.args.model_dump(mode="json"),
            "code": environment_code(one),
            "sandbox": plan.sandboxes[env_id].type,
        }
        codes[env_id] = _digest(environment)
    for stream in ("honest", "attack"):
        runs[stream] = _digest(_run(plan, stream))
    logs: dict[Path, str] = {}
    parts: list[tuple[PlayedSample, dict[str, Any]]] = []
    for sample in plan.samples:
        selected = sample.selected
        identity: dict[str, Any] = {
            "run": runs[selected.stream],
            "environment": codes[selected.env_id],
            "sample": sample.id,
        }
        if origin := selected.origin:
            path = origin.log.path
            logs[path] = logs.get(path) or _file_digest(path)
            identity["recording"] = [logs[path], origin.sample.key.id, origin.sample.key.epoch]
        parts.append((sample, identity))
    for epoch in range(1, plan.config.epochs + 1):
        for sample, identity in parts:
            yield sample, epoch, job_id({**identity, "epoch": epoch})


def environment_code(one: SelectedEnvironment) -> str:
    """The digest of an environment's code as it lies there, uncommitted changes included.

    It covers its setting without the other environments, and without what stands at the setting's top for
    readers and testers. Of an environment of an installed package, or made in code, it covers its own folder
    or module.

    Raises:
        OperationError: It cannot be read.
    """
    setting, folder = load_settings().get(one.found.setting), env_path(one.found.env)
    if setting is not None and setting.path is not None:
        others = {path for env in setting.environments.values() if (path := env_path(env))} - {folder}
        return tree_digest(setting.path.resolve(), others, FOR_PEOPLE)
    if folder is not None:
        return tree_digest(folder)
    return _source_digest(type(one.found.env))


def tree_digest(folder: Path, without: Collection[Path] = (), top: re.Pattern[str] | None = None) -> str:
    """SHA-256 of the names and the content of all files in a folder.

    Args:
        folder: The folder.
        without: Folders in it that do not count.
        top: Names in the folder itself that do not count.

    Raises:
        OperationError: A file cannot be read.
    """
    digest = hashlib.sha256()
    for path, folders, names in os.walk(folder, onerror=_refuse):
        here = Path(path)
        kept = [name for name in folders if name not in _NO_CODE and here / name not in without]
        links = [name for name in kept if (here / name).is_symlink()]
        files = [*links, *(name for name in names if not name.endswith(".pyc"))]
        if here == folder and top:
            kept, files = ([name for name in some if not top.fullmatch(name)] for some in (kept, files))
        folders[:] = sorted(kept)
        for name in sorted(files):
            file = here / name
            content = f"-> {file.readlink()}" if file.is_symlink() else _file_digest(file)
            runs = "x" if file.lstat().st_mode & 0o111 else ""
            digest.update(f"{file.relative_to(folder).as_posix()}\0{runs}\0{content}\n".encode())
    return digest.hexdigest()


@cache
def own_code() -> str:
    """The digest of our code that plays and scores, and of Inspect's version."""
    folder = Path(control_tower.__file__).resolve().parent
    code = tree_digest(folder, {folder / name for name in _AFTER_PLAY})
    return _digest([code, version("inspect-ai")])


def _run(plan: RunPlan, stream: Stream) -> dict[str, Any]:
    """What all samples of a stream share."""
    config = plan.config
    main_too = config.score_main_on_attack or any(
        env_score_main_on_attack(one.found.env) for one in plan.environments.values()
    )
    return {
        "code": own_code(),
        "policy": _side(plan.policies[stream]),
        "protocol": _side(plan.protocol),
        "monitors": sources_of(monitors_in(plan.protocol.args)),
        "white": plan.config.white.model_dump(mode="json"),
        "roles": {role: spec.model_dump(mode="json") for role, spec in config.model_roles.items()},
        "sandbox_args": config.sandbox.sandbox_args,
        "scorer_timeout": plan.scorer_timeout,
        "score_main_on_attack": main_too,
        "landing_probe": config.landing_probe,
        "limits": {key: value for key, value in config.deciding_args.items() if key != "epochs"},
    }


def _side(side: Side) -> dict[str, Any]:
    function: Any = side.entry.function
    own = str(getattr(function, "__module__", "")).partition(".")[0] == control_tower.__name__
    return {
        "name": side.entry.name,
        "args": side.recorded_args(),
        "code": None if own else _source_digest(function),
    }


def _source_digest(made: Any) -> str:
    """Of the file that a function or class was written in."""
    try:
        source = inspect.getsourcefile(made)
    except TypeError:
        source = None
    return "" if source is None else _file_digest(Path(source))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        _refuse(error)


def _refuse(error: OSError) -> NoReturn:
    raise OperationError(f"{error.filename}: cannot be read: {error.strerror}") from error
