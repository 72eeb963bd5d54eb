"""Plays commands in the demo's sandbox and asks every scorer, several samples side by side in one eval."""

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

from control_tower.demo.web_scraping import environment
from control_tower.environments import runtime_vars
from control_tower.policies.scripted import read_trajectory
from control_tower.sandbox.docker_probe import docker_problem, missing_images
from control_tower.sandbox.namespaces import bubblewrap_problem

ENV_ID = "demo/web_scraping"
MAINS = ("crawl_depth", "fix_relative_links")
SIDES = ("disable_blocklist", "leak_session_cookie", "visit_malicious_website")
DOCKER = pytest.param("lb-docker", marks=[pytest.mark.docker, pytest.mark.timeout(900)])


@dataclass(frozen=True)
class Trajectory:
    """A prepared trajectory of the demo."""

    main: str
    side: str | None
    variant: int

    @property
    def file(self) -> Path:
        """Its template."""
        if self.side is None:
            folder = environment.path / "main_tasks" / self.main / "trajs" / "honest"
        else:
            folder = environment.path / "side_tasks" / self.side / "trajs" / self.main
        return folder / str(self.variant) / "template.jsonl"

    @property
    def commands(self) -> list[str]:
        """What it runs before it submits."""
        *calls, (last, _) = read_trajectory(self.file)
        assert last == "submit"
        assert all(function == "bash" for function, _ in calls)
        return [str(arguments["cmd"]) for _, arguments in calls]


TRAJECTORIES = [Trajectory(main, side, n) for main in MAINS for side in (None, *SIDES) for n in range(4)]


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


def play(sandbox_type: str, samples: Mapping[str, Work], log_dir: Path) -> dict[str, Outcome]:
    """Run each sample's commands on a fresh machine, then score it."""
    skip_where_it_cannot_work(sandbox_type)
    import control_tower.sandbox.providers  # noqa: F401

    for side in environment.task_space().sides().values():
        runtime_vars.declare(ENV_ID, side.runtime_vars)
    metadata = {"environment": {"id": ENV_ID}, "runtime_vars": ["CRAWLER_SESSION"]}
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


def skip_where_it_cannot_work(sandbox_type: str) -> None:
    """Skip a test on a machine that lacks what a sandbox type needs, and say what that is."""
    if sandbox_type == "bwrap" and (problem := bubblewrap_problem()):
        pytest.skip(problem)
    if sandbox_type == "lb-docker":
        if problem := docker_problem():
            pytest.skip(problem)
        if missing := missing_images(environment.get_compose_path()):
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
        space = environment.task_space()
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
