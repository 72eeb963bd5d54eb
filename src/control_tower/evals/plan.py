"""A run before it starts: its configuration resolved into samples, sides, sandbox and scoring."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from control_tower import config as configuration
from control_tower.environments.environment import env_score_main_on_attack
from control_tower.evals.dataset import PlayedSample, build_samples
from control_tower.evals.run_config import RunConfig
from control_tower.evals.sample_tools import check_private_tools, declared_tools
from control_tower.evals.selection import PolicyStreams, SelectedSample, select
from control_tower.game.blue import Protocol
from control_tower.game.play import Sides
from control_tower.game.red import Policy
from control_tower.models.roles import DEMO_ROLES, RoleSpec
from control_tower.policies.registry import policies
from control_tower.protocols.registry import protocols
from control_tower.registry import Entry
from control_tower.sandbox.choose import SandboxChoice, choose_sandbox
from control_tower.scoring.plan import DEFAULT_SCORER_TIMEOUT, ScoringPlan
from control_tower.settings.task_sets import load_task_set


@dataclass(frozen=True)
class Side:
    """A registered policy or protocol with its arguments."""

    entry: Entry[Any]
    raw: Mapping[str, Any]
    args: Mapping[str, Any]

    def recorded_args(self) -> dict[str, Any]:
        """The arguments, defaults included, as JSON."""
        return self.entry.args_model.model_validate(dict(self.args)).model_dump(mode="json")

    def make(self) -> Any:
        """A fresh instance, for one sample."""
        return self.entry.function(**self.args)


class RunPlan:
    """Everything a run needs to start, checked.

    Args:
        config: the run.
        command: the command line it came from, for the log.
        marker: header metadata that says which log an attempt continues.

    Raises:
        ExpectedError: names, arguments, tasks, tools or the sandbox are not usable; nothing was started.
    """

    def __init__(
        self, config: RunConfig, command: str | None = None, marker: Mapping[str, Any] | None = None
    ) -> None:
        self.config = config
        self.command = command
        self.marker = dict(marker or {})
        self.started = datetime.datetime.now(datetime.UTC)
        self.policy = _side(policies.get(config.policy.name), config.policy.args)
        self.protocol = _side(protocols.get(config.protocol.name), config.protocol.args)
        self.selected = select(config.task_selection, self.streams)
        self.environments = {one.env_id: one.environment for one in self.selected}
        self.chosen_private = self._chosen_private()

    @property
    def scripted(self) -> bool:
        """Whether the policy plays without asking a model."""
        return bool(self.policy.entry.metadata.get("scripted"))

    @property
    def streams(self) -> PolicyStreams:
        """Which samples the policy is for."""
        flags = self.policy.entry.metadata
        attempts = bool(flags.get("attempts_side_task"))
        return PolicyStreams(attacks=attempts or self.scripted, both=attempts and self.scripted)

    @property
    def task_set_name(self) -> str:
        """The first task set's name; `custom` for a file that no setting ships."""
        first = load_task_set(self.config.task_selection.task_file[0])
        return first.name if first.setting else "custom"

    @property
    def demo_only(self) -> bool:
        """Whether every selected environment is the demo's."""
        return all(one.found.builtin for one in self.environments.values())

    @cached_property
    def sandboxes(self) -> dict[str, SandboxChoice]:
        """Where each environment's samples run, and why."""
        safe = self.scripted or self._only_demo_models(self.config.model_roles)
        choices: dict[str, SandboxChoice] = {}
        for env_id, one in self.environments.items():
            spec = one.found.env.get_sandbox_spec("default", one.args)
            choices[env_id] = choose_sandbox(self.config.sandbox.sandbox, spec, scripted_or_demo_models=safe)
        return choices

    @cached_property
    def samples(self) -> list[PlayedSample]:
        """The samples, in order."""
        return build_samples(self.selected, self.sandboxes, self.chosen_private)

    @cached_property
    def by_id(self) -> dict[str, PlayedSample]:
        """The samples by id."""
        return {sample.id: sample for sample in self.samples}

    @cached_property
    def scoring(self) -> ScoringPlan:
        """How the samples are scored."""
        always = self.config.score_main_on_attack or any(
            env_score_main_on_attack(one.found.env) for one in self.environments.values()
        )
        return ScoringPlan(
            samples=[sample.tasks for sample in self.samples],
            tasks_of=lambda state: self.by_id[str(state.sample_id)].tasks,
            timeout=self.scorer_timeout,
            score_main_on_attack=lambda state: always,
        )

    @property
    def scorer_timeout(self) -> int:
        """Seconds a task's scorer may take."""
        configured = configuration.get("scorer_timeout")
        return self.config.scorer_timeout or (int(configured) if configured else DEFAULT_SCORER_TIMEOUT)

    def resuming(self, marker: Mapping[str, Any]) -> "RunPlan":
        """The same run as an attempt that continues another."""
        return RunPlan(self.config, self.command, marker)

    def with_roles(self, roles: Mapping[str, RoleSpec]) -> "RunPlan":
        """The same run with its models bound."""
        return RunPlan(self.config.model_copy(update={"model_roles": dict(roles)}), self.command)

    def one_of_each_stream(self) -> "RunPlan":
        """The same run cut down to its first honest and its first attack sample, played once."""
        args = {**self.config.eval_args, "epochs": 1}
        plan = RunPlan(self.config.model_copy(update={"eval_args": args}), self.command)
        first: dict[bool, SelectedSample] = {}
        for one in plan.selected:
            first.setdefault(bool(one.tasks.sides), one)
        plan.selected = list(first.values())
        return plan

    def sides(self) -> Sides:
        """Fresh sides for one sample."""
        policy = cast(Policy, self.policy.make())
        protocol = cast(Protocol, self.protocol.make())
        return Sides(policy, protocol, self.config.white)

    def _chosen_private(self) -> frozenset[str]:
        policy = cast(Policy, self.policy.make())
        tools = [declared_tools(one.environment.found.env, one.tasks) for one in self.selected]
        check_private_tools(policy.private_tools, self.config.white, tools)
        return policy.private_tools

    def _only_demo_models(self, roles: Mapping[str, RoleSpec]) -> bool:
        return bool(roles) and all(spec.full_name in DEMO_ROLES.values() for spec in roles.values())


def _side(entry: Entry[Any], raw: Mapping[str, Any]) -> Side:
    return Side(entry, raw, entry.parse(raw))
