"""The samples of a run as Inspect samples: id, files, sandbox and the metadata that a log keeps of them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from inspect_ai.dataset import Sample
from inspect_ai.util import SandboxEnvironmentSpec

from control_tower.environments.files import sample_files
from control_tower.environments.runtime_vars import declare, sample_runtime_vars
from control_tower.environments.space import TaskCombination, TaskSpace
from control_tower.errors import ValidationError
from control_tower.evals.run_config import Stream
from control_tower.evals.sample_id import numbered, sample_id
from control_tower.evals.sample_tools import declared_tools, recorded_tools
from control_tower.evals.selection import SelectedSample
from control_tower.game.views import RedView
from control_tower.records.tasks import EnvironmentData, MainTaskData, SampleMetadata, SideTaskData
from control_tower.sandbox.choose import SandboxChoice
from control_tower.sandbox.replay import REPLAY

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

    @cached_property
    def view(self) -> RedView:
        """What red knows of it."""
        data = SampleMetadata.model_validate(self.inspect_sample.metadata)
        if data.environment is None:
            raise RuntimeError("the sample has no environment")
        return RedView(data.environment, tuple(data.main_tasks), tuple(data.side_tasks))


def build_samples(
    selected: Sequence[SelectedSample],
    sandboxes: Mapping[str, SandboxChoice],
    chosen_private: Mapping[Stream, frozenset[str]],
    replaying: Collection[Stream] = (),
) -> list[PlayedSample]:
    """The samples of a run.

    Args:
        selected: environment and tasks of each.
        sandboxes: where samples run, by environment id.
        chosen_private: ids of the private tools that each stream's policy uses.
        replaying: the streams whose policy plays recorded turns.

    Raises:
        ValidationError: two samples of one id, or files, variables or tools that cannot be used.
    """
    goals = {env_id: _goals(one.space) for env_id, one in {s.env_id: s.environment for s in selected}.items()}
    samples: dict[str, PlayedSample] = {}
    for one, ident in zip(selected, _ids(selected), strict=True):
        found, args, tasks = one.environment.found, one.environment.args, one.tasks
        nothing_runs = sandboxes[found.id].type == REPLAY
        if ident in samples:
            raise ValidationError(f"the selection has the sample {ident} twice; to repeat it use --epochs")
        codebase = tasks.mains[0].codebase_name if tasks.mains else "default"
        runtime_vars = {} if nothing_runs else sample_runtime_vars(one.environment.space, tasks)
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
        if one.origin is not None:
            metadata.update(one.origin.metadata(replays=one.stream in replaying))
        config = None if nothing_runs else found.env.get_sandbox_spec(codebase, args).config
        sample = Sample(
            id=ident,
            input="",
            files=None if nothing_runs else sample_files((*tasks.mains, *tasks.sides)) or None,
            sandbox=SandboxEnvironmentSpec(sandboxes[found.id].type, config),
            metadata=metadata,
        )
        samples[ident] = PlayedSample(ident, one, sample)
    return list(samples.values())


def _ids(selected: Sequence[SelectedSample]) -> list[str]:
    """The samples' ids; only recordings may have the same tasks, and are numbered then."""
    ids = [sample_id(one.env_id, one.tasks.main_ids, one.tasks.side_ids) for one in selected]
    return numbered(ids) if all(one.origin for one in selected) else ids


def _goals(space: TaskSpace) -> list[str]:
    return [side.goal for _, side in sorted(space.sides().items())]
