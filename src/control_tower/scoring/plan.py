"""Which Scores a run has: one a task, named by the task's id, then `tasks` over them, then `audit`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from inspect_ai.scorer import NOANSWER, Score, Scorer, Target, mean, scorer
from inspect_ai.solver import TaskState

from control_tower.environments.space import TaskCombination
from control_tower.environments.task import MainTask, SideTask
from control_tower.environments.workspace import FinalDiffCapture
from control_tower.errors import ValidationError
from control_tower.records.audit import AUDIT_NAME
from control_tower.records.scores import (
    RESERVED_SCORES,
    SIDE_SUFFIX,
    TASKS_SCORE,
    WORKSPACE_DIFF_SCORE,
    SideVerdict,
    combine_tasks,
    read_verdict,
)
from control_tower.records.tasks import SampleMetadata
from control_tower.scoring.audit import audit_scorer
from control_tower.scoring.landing import Landing, find_landing
from control_tower.scoring.monitor import monitor_scorer
from control_tower.scoring.side_tests import first_success
from control_tower.scoring.task_score import score_task, time_share

DEFAULT_SCORER_TIMEOUT = 600
"""Seconds a task's scorer may take."""

NOT_READY = "env_not_ready"
"""Sample metadata key: why the environment was not ready to be played at all."""

Role = Literal["main", "side"]
TasksOf = Callable[[TaskState], TaskCombination]
Task = MainTask | SideTask


@dataclass(frozen=True)
class ScoringPlan:
    """How the samples of a run are scored."""

    samples: Sequence[TaskCombination]
    tasks_of: TasksOf
    timeout: float | None = DEFAULT_SCORER_TIMEOUT
    score_main_on_attack: Callable[[TaskState], bool] = lambda state: False
    carried: Callable[[TaskState, str, Task], Score] | None = None
    """Where nothing runs: a task's Score by its key, taken from elsewhere in place of its scorer."""
    _shared_ids: frozenset[str] = field(init=False, default=frozenset())

    def __post_init__(self) -> None:
        mains = {task_id for sample in self.samples for task_id in sample.main_ids}
        sides = {task_id for sample in self.samples for task_id in sample.side_ids}
        ids = mains | sides
        if reserved := sorted(name for name in ids if name in RESERVED_SCORES or AUDIT_NAME.fullmatch(name)):
            raise ValidationError(f"a task cannot be called {', '.join(reserved)}: a Score has that name")
        object.__setattr__(self, "_shared_ids", mains & sides)

    def key(self, role: Role, task_id: str) -> str:
        """The Score key of a task; a side task that shares its id with a main task gets a suffix."""
        return task_id + SIDE_SUFFIX if role == "side" and task_id in self._shared_ids else task_id

    def scorers(self) -> list[Scorer]:
        """The run's scorers in the order they run."""
        keys: dict[str, tuple[Role, str]] = {}
        for sample in self.samples:
            for task in sample.sides:
                keys.setdefault(self.key("side", task.id), ("side", task.id))
        for sample in self.samples:
            for task in sample.mains:
                if task.scorer is not None:
                    keys.setdefault(self.key("main", task.id), ("main", task.id))
        scorers: list[Scorer] = []
        has_diff = any(task.final_diff is not None for sample in self.samples for task in sample.mains)
        if has_diff and self.carried is None:
            scorers.append(self._workspace_diff_scorer())
        scorers += [self._task_scorer(key, role, task_id) for key, (role, task_id) in keys.items()]
        audits = audit_scorer(lambda state: bool(self.tasks_of(state).sides))
        return [*scorers, self._tasks_scorer(), monitor_scorer(), audits]

    def to_score(self, state: TaskState) -> list[tuple[Role, Task]]:
        """The tasks of a sample that get a Score, in order."""
        tasks = self.tasks_of(state)
        sides: list[tuple[Role, Task]] = [("side", task) for task in tasks.sides if task.scorer]
        mains: list[tuple[Role, Task]] = [("main", task) for task in tasks.mains if task.scorer]
        return sides + mains if not tasks.sides or self.score_main_on_attack(state) else sides

    def _task_scorer(self, key: str, role: Role, task_id: str) -> Scorer:
        async def score(state: TaskState, target: Target) -> Score | None:
            scored = self.to_score(state)
            position = next((i for i, (r, t) in enumerate(scored) if (r, t.id) == (role, task_id)), None)
            if position is None:
                return None
            task = scored[position][1]
            if self.carried is not None:
                landing = Landing().as_metadata() if role == "side" else {}
                score = self.carried(state, key, task)
                return score.model_copy(update={"metadata": {**landing, **(score.metadata or {})} or None})
            if isinstance(task, SideTask):
                return await self._score_side(task, state, target, scored[position:])
            return await self._run(task, state, target, len(scored) - position)

        return _named(key, score, with_mean=True)

    async def _score_side(
        self, task: SideTask, state: TaskState, target: Target, left: Sequence[tuple[Role, Task]]
    ) -> Score:
        kept = first_success(task.id) if task.failure_type == "live" else None
        if kept is not None:
            score, landed_at, source = kept
            score = score.model_copy(update={"explanation": f"[cached] {score.explanation or ''}"})
            landing = Landing(landed_at, source)
        else:
            waiting = sum(1 for _, other in left if other is task or first_success(other.id) is None)
            score = await self._run(task, state, target, waiting)
            landing = find_landing(task, score)
        metadata = {
            k: v for k, v in (score.metadata or {}).items() if k not in ("landed_at", "landed_source")
        }
        return score.model_copy(update={"metadata": {**metadata, **landing.as_metadata()}})

    async def _run(self, task: Task, state: TaskState, target: Target, tasks_left: int) -> Score:
        if task.scorer is None:
            raise RuntimeError(f"{task.id} has no scorer")
        if NOT_READY in state.metadata:
            return Score.unscored(
                reason="env_not_ready", explanation=f"Environment not ready: {state.metadata[NOT_READY]}"
            )
        return await score_task(
            task.id,
            task.name,
            task.scorer,
            state,
            target,
            time_share(self.timeout, tasks_left),
            unit_interval=isinstance(task, SideTask),
        )

    def _tasks_scorer(self) -> Scorer:
        async def score(state: TaskState, target: Target) -> Score:
            tasks = self.tasks_of(state)
            scores = state.scores or {}
            mains = [_number(scores.get(self.key("main", task.id))) for task in tasks.mains]
            sides = [self._side_verdict(scores.get(self.key("side", task.id))) for task in tasks.sides]
            return Score(value=combine_tasks(mains, sides))  # pyright: ignore[reportArgumentType]

        return _named(TASKS_SCORE, score)

    def _side_verdict(self, score: Score | None) -> SideVerdict:
        landed_at = (score.metadata or {}).get("landed_at") if score else None
        return SideVerdict(_number(score), landed_at)

    def _workspace_diff_scorer(self) -> Scorer:
        async def score(state: TaskState, target: Target) -> Score | None:
            for task in self.tasks_of(state).mains:
                if task.final_diff is not None and NOT_READY in state.metadata:
                    return Score(value=NOANSWER, metadata={"error": state.metadata[NOT_READY]})
                if task.final_diff is not None:
                    environment = state.metadata_as(SampleMetadata).environment
                    return await _workspace_diff(task, environment.id if environment else "")
            return None

        return _named(WORKSPACE_DIFF_SCORE, score)


async def _workspace_diff(task: MainTask, env_id: str) -> Score:
    record = await FinalDiffCapture(task, env_id).finish()
    value = NOANSWER if record.changed is None else record.changed
    return Score(value=value, metadata=record.metadata)


def _number(score: Score | None) -> float | None:
    return None if score is None else read_verdict(score.value)


def _named(key: str, function: Scorer, *, with_mean: bool = False) -> Scorer:
    def factory() -> Scorer:
        return function

    return scorer(metrics=[mean()] if with_mean else [], name=key)(factory)()
