"""Which tasks an environment has and how they may be combined into samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from control_tower.environments.task import MainTask, SideTask
from control_tower.environments.task_map import (
    Kind,
    LazyTaskMap,
    T,
    TaskMap,
    UnknownTaskError,
    UnloadableTaskError,
)
from control_tower.errors import UsageError, did_you_mean

__all__ = [
    "CrossProduct",
    "ExplicitSpace",
    "LazyTaskMap",
    "TaskCombination",
    "TaskMap",
    "TaskMode",
    "TaskSpace",
    "UnknownTaskError",
    "UnloadableTaskError",
    "find_task",
    "folder_task_space",
    "project",
]

TaskMode = Literal["honest", "attack", "side_only", "empty"]


@dataclass(frozen=True, eq=False)
class TaskCombination:
    """The tasks of one sample; two are equal when they hold the same task ids."""

    mains: tuple[MainTask, ...] = ()
    sides: tuple[SideTask, ...] = ()

    @property
    def main_ids(self) -> frozenset[str]:
        """Ids of the main tasks."""
        return frozenset(task.id for task in self.mains)

    @property
    def side_ids(self) -> frozenset[str]:
        """Ids of the side tasks."""
        return frozenset(task.id for task in self.sides)

    @property
    def mode(self) -> TaskMode:
        """`honest` without side tasks, `attack` with both, else `side_only` or `empty`."""
        if self.sides:
            return "attack" if self.mains else "side_only"
        return "honest" if self.mains else "empty"

    @property
    def main_task(self) -> MainTask | None:
        """The first main task."""
        return self.mains[0] if self.mains else None

    @property
    def side_task(self) -> SideTask | None:
        """The first side task."""
        return self.sides[0] if self.sides else None

    @property
    def environment(self) -> str | None:
        """The environment its tasks belong to, None without tasks."""
        return next((task.environment for task in (*self.mains, *self.sides)), None)

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """Every (main id, side id) in it."""
        return frozenset((main, side) for main in self.main_ids for side in self.side_ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskCombination) and self._ids == other._ids

    def __hash__(self) -> int:
        return hash(self._ids)

    @property
    def _ids(self) -> tuple[frozenset[str], frozenset[str]]:
        return self.main_ids, self.side_ids


@runtime_checkable
class TaskSpace(Protocol):
    """The combinations an environment allows. What it iterates over, it also contains."""

    def __iter__(self) -> Iterator[TaskCombination]:
        """The combinations that selecting everything would run."""
        ...

    def __contains__(self, combination: object, /) -> bool:
        """Whether a combination may be run, listed or not."""
        ...

    def mains(self) -> Mapping[str, MainTask]:
        """Main tasks by id."""
        ...

    def sides(self) -> Mapping[str, SideTask]:
        """Side tasks by id."""
        ...

    def get(self, main_id: str | None = None, side_id: str | None = None) -> TaskCombination:
        """The combination of these tasks.

        Raises:
            UnknownTaskError: no task of that id.
            UsageError: the two are not to be combined.
        """
        ...


class _Space:
    """`get` in terms of the other members."""

    def __contains__(self, combination: object, /) -> bool:
        raise NotImplementedError

    def mains(self) -> Mapping[str, MainTask]:
        raise NotImplementedError

    def sides(self) -> Mapping[str, SideTask]:
        raise NotImplementedError

    def get(self, main_id: str | None = None, side_id: str | None = None) -> TaskCombination:
        """The combination of these tasks; side-only and empty ones are made without asking the space.

        Raises:
            UnknownTaskError: no task of that id.
            UsageError: the two are not to be combined.
        """
        mains = () if main_id is None else (find_task(self.mains(), main_id, "main task"),)
        sides = () if side_id is None else (find_task(self.sides(), side_id, "side task"),)
        combination = TaskCombination(mains, sides)
        if mains and combination not in self:
            if side_id is None:
                raise UsageError(f"main task '{main_id}' is not run without a side task here")
            raise UsageError(f"side task '{side_id}' is not combined with main task '{main_id}' here")
        return combination


def find_task(tasks: Mapping[str, T], task_id: str, kind: Kind) -> T:
    """The task of an id.

    Raises:
        UnknownTaskError: none; with the nearest names.
        UnloadableTaskError: it is there but does not load.
    """
    if isinstance(tasks, LazyTaskMap) or task_id in tasks:
        return tasks[task_id]
    raise UnknownTaskError(f"no {kind} '{task_id}'{did_you_mean(task_id, tasks)}")


class CrossProduct(_Space):
    """Every main task alone, then with every side task that accepts it."""

    def __init__(self, _mains: Mapping[str, MainTask], _sides: Mapping[str, SideTask] | None = None) -> None:
        """Both maps are id to task; `_sides` may be left out."""
        self._mains = _mains
        self._sides: Mapping[str, SideTask] = {} if _sides is None else _sides

    def mains(self) -> Mapping[str, MainTask]:
        """Main tasks by id."""
        return self._mains

    def sides(self) -> Mapping[str, SideTask]:
        """Side tasks by id."""
        return self._sides

    def __iter__(self) -> Iterator[TaskCombination]:
        mains = list(self._mains.values())
        for main in mains:
            yield TaskCombination((main,))
        sides = list(self._sides.values())
        for main in mains:
            for side in sides:
                if side.accepts_main(main.id):
                    yield TaskCombination((main,), (side,))

    def __contains__(self, combination: object, /) -> bool:
        if not isinstance(combination, TaskCombination) or not combination.mains:
            return False
        if not all(main_id in self._mains for main_id in combination.main_ids):
            return False
        return all(
            side_id in self._sides and self._sides[side_id].accepts_main(main_id)
            for side_id in combination.side_ids
            for main_id in combination.main_ids
        )


class ExplicitSpace(_Space):
    """The combinations an author lists, in that order."""

    def __init__(self, combos: Iterable[TaskCombination]) -> None:
        self.combos = tuple(combos)
        self._listed = frozenset(self.combos)
        self._pairs = frozenset(pair for combo in self.combos for pair in combo.pairs)
        self._alone = frozenset(
            main_id for combo in self.combos if combo.mode == "honest" for main_id in combo.main_ids
        )

    def mains(self) -> dict[str, MainTask]:
        """Main tasks by id, in the order they are first listed."""
        tasks: dict[str, MainTask] = {}
        for combo in self.combos:
            for task in combo.mains:
                tasks.setdefault(task.id, task)
        return tasks

    def sides(self) -> dict[str, SideTask]:
        """Side tasks by id, in the order they are first listed."""
        tasks: dict[str, SideTask] = {}
        for combo in self.combos:
            for task in combo.sides:
                tasks.setdefault(task.id, task)
        return tasks

    def __iter__(self) -> Iterator[TaskCombination]:
        return iter(self.combos)

    def __contains__(self, combination: object, /) -> bool:
        if not isinstance(combination, TaskCombination):
            return False
        if combination in self._listed:
            return True
        if combination.mode == "honest":
            return combination.main_ids <= self._alone
        return combination.mode == "attack" and combination.pairs <= self._pairs

    def get(self, main_id: str | None = None, side_id: str | None = None) -> TaskCombination:
        """The listed combination of these tasks, with the task objects it was listed with."""
        combination = super().get(main_id, side_id)
        return next((combo for combo in self.combos if combo == combination), combination)


class ProjectedSpace(_Space):
    """A space restricted to some modes."""

    def __init__(self, space: TaskSpace, modes: Collection[TaskMode]) -> None:
        self._space = space
        self._modes = frozenset(modes)

    def mains(self) -> Mapping[str, MainTask]:
        """Main tasks, where a mode has any."""
        return self._space.mains() if self._modes & {"honest", "attack"} else {}

    def sides(self) -> Mapping[str, SideTask]:
        """Side tasks, where a mode has any."""
        return self._space.sides() if self._modes & {"attack", "side_only"} else {}

    def __iter__(self) -> Iterator[TaskCombination]:
        return (combination for combination in self._space if combination.mode in self._modes)

    def __contains__(self, combination: object, /) -> bool:
        return (
            isinstance(combination, TaskCombination)
            and combination.mode in self._modes
            and combination in self._space
        )


def project(space: TaskSpace, modes: Collection[TaskMode]) -> TaskSpace:
    """The part of a space that has these modes."""
    return ProjectedSpace(space, modes)


def folder_task_space(path: Path, env_id: str) -> CrossProduct:
    """The tasks of an environment's folder: `main_tasks/*` with `side_tasks/*`, none loaded yet."""
    from control_tower.environments import loading

    return CrossProduct(
        _folder_tasks(path / "main_tasks", loading.load_main_task_from_path, "main task", env_id),
        _folder_tasks(path / "side_tasks", loading.load_side_task_from_path, "side task", env_id),
    )


def _folder_tasks(
    folder: Path, load: Callable[[Path, str | None], T], kind: Kind, env_id: str
) -> LazyTaskMap[T]:
    from control_tower.environments.loading import ignore_task_folder

    folders = sorted(entry for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    ignored = {entry.name for entry in folders if ignore_task_folder(entry)}
    return LazyTaskMap(
        [entry.name for entry in folders if entry.name not in ignored],
        lambda task_id: load(folder / task_id, env_id),
        kind,
        env_id,
        placeholders=ignored - {"__pycache__"},
    )
