"""Tasks by id, loaded one by one when they are asked for, with the reasons why some do not load."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, Literal, TypeVar

from control_tower.environments.task import MainTask, SideTask
from control_tower.errors import UsageError, ValidationError, did_you_mean

Kind = Literal["main task", "side task"]
TaskMap = Mapping[str, MainTask] | Mapping[str, SideTask]
T = TypeVar("T", MainTask, SideTask)

logger = logging.getLogger(__name__)


class UnknownTaskError(UsageError, KeyError):
    """An environment has no task of this name; the message says what is near."""

    def __str__(self) -> str:
        """The message as it is, where a plain KeyError would quote it."""
        return str(self.args[0])


class UnloadableTaskError(ValidationError):
    """A task's folder is there, but its code or metadata is broken; the cause is chained."""


class LazyTaskMap(Mapping[str, T], Generic[T]):
    """Tasks by id, each loaded when first asked for.

    Iteration gives the ids that load: one whose loader fails or returns None is left out with a warning,
    but asking for it by name raises the cause.
    """

    def __init__(
        self,
        ids: Iterable[str],
        loader: Callable[[str], T | None],
        kind: Kind,
        env_id: str,
        placeholders: Iterable[str] = (),
        catch: tuple[type[Exception], ...] = (Exception,),
    ) -> None:
        """Prepare the map; nothing is loaded yet.

        Args:
            ids: the ids there are, in order.
            loader: makes the task of an id, None when there is none after all.
            kind: what the tasks are called in messages.
            env_id: the environment, for messages.
            placeholders: names of folders that hold no task yet.
            catch: what a loader may raise; authors' modules may raise anything.
        """
        self._ids = tuple(dict.fromkeys(ids))
        self._loader = loader
        self._kind: Kind = kind
        self._env_id = env_id
        self._placeholders = frozenset(placeholders)
        self._catch = catch
        self._tasks: dict[str, T | None] = {}
        self._errors: dict[str, Exception] = {}

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids, loadable or not, without loading any."""
        return self._ids

    @property
    def placeholders(self) -> frozenset[str]:
        """Folders that hold no task yet."""
        return self._placeholders

    @property
    def load_errors(self) -> dict[str, Exception]:
        """Why each unloadable task does not load; loads all."""
        for task_id in self._ids:
            self._load(task_id)
        return dict(self._errors)

    @property
    def unloadable_ids(self) -> frozenset[str]:
        """Ids of tasks that do not load; loads all."""
        return frozenset(self.load_errors)

    def load_error(self, task_id: str) -> Exception | None:
        """Why this task does not load, None when it does."""
        self._load(task_id)
        return self._errors.get(task_id)

    def __getitem__(self, task_id: str) -> T:
        if task_id not in self._ids:
            raise UnknownTaskError(self._unknown(task_id))
        task = self._load(task_id)
        if error := self._errors.get(task_id):
            raise UnloadableTaskError(
                f"{self._kind} '{task_id}' of '{self._env_id}' does not load: {_one_line(error)}"
            ) from error
        if task is None:
            raise UnknownTaskError(self._unknown(task_id))
        return task

    def __contains__(self, task_id: object) -> bool:
        return isinstance(task_id, str) and task_id in self._ids and self._load(task_id) is not None

    def __iter__(self) -> Iterator[str]:
        return (task_id for task_id in self._ids if self._load(task_id) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _load(self, task_id: str) -> T | None:
        if task_id not in self._tasks and task_id in self._ids:
            try:
                self._tasks[task_id] = self._loader(task_id)
            except self._catch as error:
                logger.warning(
                    "%s '%s' of '%s' is left out: %s", self._kind, task_id, self._env_id, _one_line(error)
                )
                self._errors[task_id] = error
                self._tasks[task_id] = None
        return self._tasks.get(task_id)

    def _unknown(self, task_id: str) -> str:
        if task_id in self._placeholders:
            return (
                f"{self._kind} '{task_id}' of '{self._env_id}' is only a placeholder folder: "
                "it is an idea or empty, so there is nothing to run"
            )
        return f"'{self._env_id}' has no {self._kind} '{task_id}'{did_you_mean(task_id, self._ids)}"


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
