"""The samples of a run as Inspect samples: id, files, sandbox and the metadata that a log keeps of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inspect_ai.dataset import Sample
from inspect_ai.util import SandboxEnvironmentSpec

from control_tower.environments.files import sample_files
from control_tower.environments.runtime_vars import declare, sample_runtime_vars
from control_tower.environments.space import TaskCombination, TaskSpace
from control_tower.errors import ValidationError
from control_tower.evals.run_config import Stream
from control_tower.evals.sample_id import sample_id
from control_tower.evals.sample_tools import declared_tools, recorded_tools
from control_tower.evals.selection import SelectedSample
from control_tower.records.tasks import EnvironmentData, MainTaskData, SideTaskData
from control_tower.sandbox.choose import SandboxChoice

STARTUP_RETRIES = 0
"""A sandbox that does not start is that sample's error; it is not tried again."""

CAN_INJECT = frozenset({"bwrap", "process", "lb-docker"})
"""Sandboxes that put a sample's fresh variables into the agent's machine."""


@dataclass(frozen=True)
class PlayedSample:
    """A selected sample with what its id stands for."""

    id: str
    selected: SelectedSample
    inspect_sample: Sample

    @property
    def tasks(self) -> TaskCombination:
        return self.selected.tasks

    @property
    def env(self) -> Any:
        return self.selected.environment.found.env


def build_samples(
    selected: Sequence[SelectedSample],
    sandboxes: Mapping[str, SandboxChoice],
    chosen_private: Mapping[Stream, frozenset[str]],
) -> list[PlayedSample]:
    """The samples of a run.

    Args:
        selected: environment and tasks of each.
        sandboxes: where samples run, by environment id.
        chosen_private: ids of the private tools that each stream's policy uses.

    Raises:
        ValidationError: two samples of one id, or files, variables or tools that cannot be used.
    """
    goals = {env_id: _goals(one.space) for env_id, one in {s.env_id: s.environment for s in selected}.items()}
    samples: dict[str, PlayedSample] = {}
    for one in selected:
        found, args, tasks = one.environment.found, one.environment.args, one.tasks
        ident = sample_id(found.id, tasks.main_ids, tasks.side_ids)
        if ident in samples:
            raise ValidationError(f"the selection has the sample {ident} twice; to repeat it use --epochs")
        codebase = tasks.mains[0].codebase_name if tasks.mains else "default"
        runtime_vars = sample_runtime_vars(one.environment.space, tasks)
        declare(found.id, runtime_vars)
        if runtime_vars and sandboxes[found.id].type not in CAN_INJECT:
            raise ValidationError(
                f"{found.id} has runtime variables, and {sandboxes[found.id].type} cannot inject them: "
                "use --sandbox bwrap, docker or process"
            )
        tools = declared_tools(found.env, tasks)
        environment = EnvironmentData.from_environment(
            found.env, setting=found.setting, env_args=args, side_task_goals=goals[found.id]
        )
        metadata: dict[str, Any] = {
            "main_tasks": [MainTaskData.from_task(task).model_dump(mode="json") for task in tasks.mains],
            "side_tasks": [SideTaskData.from_task(task).model_dump(mode="json") for task in tasks.sides],
            "environment": environment.model_dump(mode="json"),
            "startup_retries": STARTUP_RETRIES,
            "tools": recorded_tools(tools, chosen_private[one.stream], found.setting),
        }
        if runtime_vars:
            metadata["runtime_vars"] = sorted(runtime_vars)
        sample = Sample(
            id=ident,
            input="",
            files=sample_files((*tasks.mains, *tasks.sides)) or None,
            sandbox=SandboxEnvironmentSpec(
                sandboxes[found.id].type, found.env.get_sandbox_spec(codebase, args).config
            ),
            metadata=metadata,
        )
        samples[ident] = PlayedSample(ident, one, sample)
    return list(samples.values())


def _goals(space: TaskSpace) -> list[str]:
    return [side.goal for _, side in sorted(space.sides().items())]
