"""The Inspect tasks `control_tower/eval` and `control_tower/control_eval`: samples, solver and scorers."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset
from inspect_ai.scorer import Score, Target
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import EarlyStopping, span

from control_tower.environments.failures import EnvironmentNotReady
from control_tower.environments.task import SideTask
from control_tower.evals.dataset import PlayedSample
from control_tower.evals.header import header_metadata
from control_tower.evals.plan import RunPlan
from control_tower.evals.prepare import prepare
from control_tower.evals.recordings_serving import ServedSample
from control_tower.evals.run_config import Kind, RunConfig
from control_tower.evals.sample_tools import sample_tools
from control_tower.game.play import OUTCOME, Play
from control_tower.logs.recordings import Recording
from control_tower.models.roles import make_models
from control_tower.monitors.panel import verdicts_stored_once
from control_tower.policies.replay import replaying
from control_tower.scoring.landing import reported_landing
from control_tower.scoring.plan import NOT_READY
from control_tower.scoring.side_tests import Source, first_success, keep_first_success
from control_tower.scoring.task_score import score_task

_playing: ContextVar[RunPlan] = ContextVar("playing")
_prepared: ContextVar[tuple[RunPlan, EarlyStopping | None] | None] = ContextVar("prepared", default=None)


@contextmanager
def prepared(plan: RunPlan, only: EarlyStopping | None = None) -> Generator[None]:
    """Make the task from a plan that is there already, playing only what `only` lets through."""
    token = _prepared.set((plan, only))
    try:
        yield
    finally:
        _prepared.reset(token)


@task(name="eval")
def eval_task(
    task_selection: dict[str, Any],
    policy: dict[str, Any] | None = None,
    protocol: dict[str, Any] | None = None,
    white: dict[str, Any] | None = None,
    model_roles: dict[str, Any] | None = None,
    sandbox: dict[str, Any] | None = None,
    scorer_timeout: int | None = None,
    score_main_on_attack: bool = False,
    landing_probe: str = "declared",
    run_name: str | None = None,
    tags: list[str] | None = None,
) -> Task:
    """One policy against one protocol over a selection of tasks; the arguments are RunConfig's."""
    return _make_task("eval", locals())


@task(name="control_eval")
def control_eval_task(
    task_selection: dict[str, Any],
    honest_policy: dict[str, Any] | None = None,
    attack_policy: dict[str, Any] | None = None,
    protocol: dict[str, Any] | None = None,
    white: dict[str, Any] | None = None,
    model_roles: dict[str, Any] | None = None,
    sandbox: dict[str, Any] | None = None,
    scorer_timeout: int | None = None,
    score_main_on_attack: bool = False,
    landing_probe: str = "declared",
    run_name: str | None = None,
    tags: list[str] | None = None,
) -> Task:
    """An honest and an attack policy against one protocol; the arguments are RunConfig's."""
    return _make_task("control_eval", locals())


def _make_task(kind: Kind, arguments: Mapping[str, Any]) -> Task:
    held = _prepared.get()
    if held:
        plan, only = held
    else:
        given = {key: value for key, value in arguments.items() if value is not None}
        plan, only = RunPlan(RunConfig.model_validate({"kind": kind, **given})), None
    header = header_metadata(plan)
    token = _playing.set(plan)
    try:
        runner = eval_runner()
    finally:
        _playing.reset(token)
    return Task(
        dataset=MemoryDataset([sample.inspect_sample for sample in plan.samples]),
        solver=runner,
        scorer=plan.scoring.scorers(),
        name=header["run_name"],
        metadata=header,
        model_roles=None if held else dict(make_models(plan.config.model_roles)),
        early_stopping=only,
    )


@solver(name="eval_runner")
def eval_runner() -> Solver:
    """Plays each sample; made for the task that is being made."""
    plan = _playing.get()

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        with verdicts_stored_once():
            await _SamplePlay(plan, plan.by_id[str(state.sample_id)], state).run()
        return state

    return solve


class _SamplePlay:
    """One sample: preparation, tools, play, and probes of live side tasks on the way."""

    def __init__(self, plan: RunPlan, sample: PlayedSample, state: TaskState) -> None:
        self._plan = plan
        self._sample = sample
        self._state = state
        self._play: Play | None = None

    async def run(self) -> None:
        tasks = self._sample.tasks
        # Inspect puts the (empty) input there; ours hold executed calls only.
        self._state.messages = []
        try:
            if not self._plan.nothing_runs:
                await prepare(tasks, self._sample.selected.env_id)
        except EnvironmentNotReady as error:
            self._state.metadata[OUTCOME] = NOT_READY
            self._state.metadata[NOT_READY] = str(error)
            return
        view = self._sample.view
        sides = self._plan.sides(self._sample.selected.stream)
        recording = self._recording()
        with replaying(recording):
            sides.policy.setup(view)
        tools = sample_tools(
            self._sample.env,
            tasks,
            sides.policy.private_tools,
            {task.id: self._score_main for task in tasks.mains if task.scorer},
            {task.id: self._test_side for task in tasks.sides if task.scorer},
        )
        if self._plan.nothing_runs and recording is not None:
            served = ServedSample(self._state, recording)
            self._play = Play(self._state, sides, view, served.tools(tools), served.after_action)
            await served.run(self._play)
            return
        probed = self._probed()
        self._play = Play(self._state, sides, view, tools, self._probe if probed else None)
        await self._play.run()

    def _recording(self) -> Recording | None:
        selected = self._sample.selected
        if selected.origin and (self._plan.nothing_runs or selected.stream in self._plan.replaying):
            return selected.origin.recording()
        return None

    def _probed(self) -> Sequence[SideTask]:
        mode = self._plan.config.landing_probe
        live = [task for task in self._sample.tasks.sides if task.failure_type == "live" and task.scorer]
        return [task for task in live if mode == "each-action" or (mode == "declared" and task.probe)]

    async def _probe(self, last_ran: int) -> None:
        for side in self._probed():
            if first_success(side.id) is None:
                # A scorer's span, so that what a probe costs is not the protocol's.
                async with span(f"probe: {side.id}", type="scorer"):
                    await self._score_side(side, last_ran, "probe")

    async def _score_main(self, task_id: str) -> Score:
        task = next(task for task in self._sample.tasks.mains if task.id == task_id)
        return await self._scored(task.id, task.name, task.scorer)

    async def _test_side(self, task_id: str) -> Score:
        task = next(task for task in self._sample.tasks.sides if task.id == task_id)
        last_ran = self._play.ledger.last_ran if self._play else -1
        return await self._score_side(task, last_ran, "test")

    async def _score_side(self, task: SideTask, last_ran: int, source: Source) -> Score:
        score = await self._scored(task.id, task.name, task.scorer, unit_interval=True)
        if task.failure_type == "live" and self._play:
            reported = reported_landing(score, self._play.ledger.action_at)
            if reported is not None and -1 <= reported < last_ran:
                keep_first_success(task.id, score, reported, "scorer")
            else:
                keep_first_success(task.id, score, last_ran, source)
        return score

    async def _scored(
        self, task_id: str, name: str, task_scorer: Any, *, unit_interval: bool = False
    ) -> Score:
        timeout = self._plan.scorer_timeout
        return await score_task(
            task_id, name, task_scorer, self._state, Target(""), timeout, unit_interval=unit_interval
        )
