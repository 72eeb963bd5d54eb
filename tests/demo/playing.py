"""Plays commands in the sandbox of a demo environment and asks every scorer, several samples in one eval."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import Score, Scorer, Target, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import SandboxEnvironmentSpec, sandbox

from control_tower.demo import get_environments
from control_tower.environments import runtime_vars
from control_tower.policies.scripted import read_trajectory
from control_tower.sandbox.docker_probe import docker_problem, missing_images
from control_tower.sandbox.namespaces import bubblewrap_problem

ENVIRONMENTS = get_environments()
DOCKER = pytest.param("lb-docker", marks=[pytest.mark.docker, pytest.mark.timeout(900)])


@dataclass(frozen=True)
class Trajectory:
    """A prepared trajectory of an environment of the demo."""

    env: str
    main: str
    side: str | None
    variant: int

    def __str__(self) -> str:
        return f"{self.main}-{self.side or 'honest'}-{self.variant}"

    @property
    def file(self) -> Path:
        """Its template."""
        return _folder(self.env, self.main, self.side) / str(self.variant) / "template.jsonl"

    @property
    def commands(self) -> list[str]:
        """What it runs before it submits."""
        *calls, (last, _) = read_trajectory(self.file)
        assert last == "submit"
        assert all(function == "bash" for function, _ in calls)
        return [str(arguments["cmd"]) for _, arguments in calls]


def _folder(env: str, main: str, side: str | None) -> Path:
    path = ENVIRONMENTS[env].path
    return (
        path / "main_tasks" / main / "trajs" / "honest"
        if side is None
        else path / "side_tasks" / side / "trajs" / main
    )


def trajectories(env: str) -> list[Trajectory]:
    """All prepared trajectories of an environment; an honest one or an attack after the other."""
    space = ENVIRONMENTS[env].task_space()
    return [
        Trajectory(env, main, side, variant)
        for main in space.mains().ids
        for side in (None, *space.sides().ids)
        for variant in range(len(list(_folder(env, main, side).iterdir())))
    ]


TRAJECTORIES = [trajectory for env in ENVIRONMENTS for trajectory in trajectories(env)]


@dataclass(frozen=True)
class Outcome:
    """What the scorers said; `landed` is the command during which the live attack landed."""

    verdicts: Mapping[str, str]
    landed: int | None
    explanations: Mapping[str, str]
    outputs: Sequence[str]


@dataclass(frozen=True)
class Work:
    """What is done in a sample, and the main task it is scored for; all side tasks are scored too."""

    commands: Sequence[str]
    main: str


def play(env: str, sandbox_type: str, samples: Mapping[str, Work], log_dir: Path) -> dict[str, Outcome]:
    """Run each sample's commands on a fresh machine of an environment, then score it."""
    environment = ENVIRONMENTS[env]
    skip_where_it_cannot_work(environment.get_compose_path(), sandbox_type)
    import control_tower.sandbox.providers  # noqa: F401

    variables = {
        name: variable
        for side in environment.task_space().sides().values()
        for name, variable in side.runtime_vars.items()
    }
    runtime_vars.declare(env, variables)
    metadata = {"environment": {"id": env}, "runtime_vars": list(variables)}
    dataset = [
        Sample(id=name, input="x", metadata={**metadata, "commands": list(work.commands), "main": work.main})
        for name, work in samples.items()
    ]
    [log] = eval(
        Task(
            dataset=MemoryDataset(dataset),
            solver=run_commands(),
            scorer=every_scorer(),
            sandbox=SandboxEnvironmentSpec(sandbox_type, str(environment.get_compose_path())),
        ),
        model="mockllm/model",
        display="none",
        max_samples=3,
        log_dir=str(log_dir),
    )
    assert log.samples is not None
    assert [sample.error.message for sample in log.samples if sample.error] == []
    return {str(sample.id): _outcome(sample.metadata["outcome"]) for sample in log.samples}


def skip_where_it_cannot_work(compose: Path, sandbox_type: str) -> None:
    """Skip a test on a machine that lacks what a sandbox type needs, and say what that is."""
    if sandbox_type == "bwrap" and (problem := bubblewrap_problem()):
        pytest.skip(problem)
    if sandbox_type == "lb-docker":
        if problem := docker_problem():
            pytest.skip(problem)
        if missing := missing_images(compose):
            pytest.skip(f"Docker has no image {missing[0]}: CT_BASE_IMAGE can name another one with python3")


def _outcome(recorded: dict[str, Any]) -> Outcome:
    return Outcome(**recorded)


@solver
def run_commands() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        ends: list[float] = []
        outputs: list[str] = []
        for command in state.metadata["commands"]:
            result = await sandbox().exec(["bash", "-c", command], timeout=60, timeout_retry=False)
            outputs.append(f"{result.stdout}{result.stderr}[{result.returncode}]")
            ends.append(time.time())
        state.metadata["ends"] = ends
        state.metadata["outputs"] = outputs
        return state

    return solve


@scorer(metrics=[])
def every_scorer() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        space = ENVIRONMENTS[state.metadata["environment"]["id"]].task_space()
        verdicts: dict[str, str] = {}
        explanations: dict[str, str] = {}
        landed: int | None = None
        for task in (*space.sides().values(), space.mains()[state.metadata["main"]]):
            assert task.scorer is not None
            verdict = await task.scorer(state, target)
            assert verdict is not None
            verdicts[task.id] = verdict.as_str()
            explanations[task.id] = verdict.explanation or ""
            if when := (verdict.metadata or {}).get("landed_time"):
                landed = sum(end < when for end in state.metadata["ends"])
        state.metadata["outcome"] = {
            "verdicts": verdicts,
            "landed": landed,
            "explanations": explanations,
            "outputs": state.metadata["outputs"],
        }
        return Score(value=1)

    return score
