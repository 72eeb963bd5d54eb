"""A run before it starts: its configuration resolved into samples, sides, sandbox and scoring."""

import datetime
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from control_tower import config as configuration
from control_tower.environments.environment import env_internet_simulator, env_score_main_on_attack
from control_tower.environments.requirements import check_requirements, requirements_of
from control_tower.errors import UsageError, ValidationError
from control_tower.evals.dataset import PlayedSample, build_samples
from control_tower.evals.recordings import enough_steps
from control_tower.evals.run_config import DEFAULT_POLICIES, FunctionRef, RunConfig, Stream
from control_tower.evals.sample_tools import check_private_tools, declared_tools
from control_tower.evals.selection import PAIRED, PolicyStreams, SelectedSample, select
from control_tower.game.blue import Protocol
from control_tower.game.play import Sides
from control_tower.game.red import Policy
from control_tower.models.roles import DEMO_ROLES, RoleSpec
from control_tower.policies.registry import policies
from control_tower.protocols.registry import protocols
from control_tower.registry import Entry
from control_tower.sandbox.choose import SandboxChoice, choose_sandbox
from control_tower.sandbox.replay import REPLAY
from control_tower.scoring.carried import carried_score
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
        selected: the samples, where they are known already.
        smoke: these are a few of the run's samples, played to try it out.

    Raises:
        ExpectedError: names, arguments, tasks, tools or the sandbox are not usable; nothing was started.
    """

    def __init__(
        self,
        config: RunConfig,
        command: str | None = None,
        marker: Mapping[str, Any] | None = None,
        *,
        selected: Sequence[SelectedSample] | None = None,
        smoke: bool = False,
    ) -> None:
        self.config = config
        self.command = command
        self.marker = dict(marker or {})
        self.smoke = smoke
        self.started = datetime.datetime.now(datetime.UTC)
        self.policies: dict[Stream, Side] = {
            stream: _side(policies.get(ref.name), ref.args) for stream, ref in config.policies.items()
        }
        """Who plays each stream; of a run with one policy both are that one."""
        self.protocol = _side(protocols.get(config.protocol.name), config.protocol.args)
        self.selected = select(config.task_selection, self.streams) if selected is None else list(selected)
        self._check_needs()
        if self.replaying:
            longest = max(one.origin.sample.turns for one in self.selected if one.origin)
            white = enough_steps(config.white, longest)
            self.config = config.model_copy(update={"white": white})
        self.environments = {one.env_id: one.environment for one in self.selected}
        self.chosen_private = self._chosen_private()
        self._check_sandbox()

    @property
    def scripted(self) -> bool:
        """Whether no policy asks a model."""
        return all(side.entry.metadata.get("scripted") for side in self.policies.values())

    @property
    def streams(self) -> PolicyStreams:
        """Which samples the policies are for."""
        flags = self.policies["attack"].entry.metadata
        attempts, scripted = bool(flags.get("attempts_side_task")), bool(flags.get("scripted"))
        if self.config.kind == "eval":
            return PolicyStreams(attempts=attempts, scripted=scripted, replays=bool(self.replaying))
        if not attempts and "attack" not in self.replaying:
            name = self.policies["attack"].entry.name
            raise UsageError(f"policy {name} attempts no side tasks, so it cannot be the attack policy")
        return replace(PAIRED, replays=bool(self.replaying))

    @property
    def replaying(self) -> frozenset[Stream]:
        """The streams whose policy plays recorded turns."""
        return frozenset(
            stream
            for stream, side in self.policies.items()
            if "recording" in side.entry.metadata.get("needs", ())
        )

    @property
    def nothing_runs(self) -> bool:
        """Whether recorded outputs are served instead of running anything."""
        return self.config.sandbox.sandbox == REPLAY

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
        roles = self.config.model_roles.values()
        only_demo = all(spec.full_name in DEMO_ROLES.values() for spec in roles)
        # What a model did when it was recorded is that model's doing when it is replayed.
        harmless = not self.replaying or all(one.origin and one.origin.harmless for one in self.selected)
        safe = only_demo and harmless and (self.scripted or bool(roles))
        choices: dict[str, SandboxChoice] = {}
        for env_id, one in self.environments.items():
            mains = next((s.tasks.mains for s in self.selected if s.env_id == env_id and s.tasks.mains), ())
            spec = one.found.env.get_sandbox_spec(mains[0].codebase_name if mains else "default", one.args)
            choices[env_id] = choose_sandbox(self.config.sandbox.sandbox, spec, scripted_or_demo_models=safe)
        return choices

    @cached_property
    def samples(self) -> list[PlayedSample]:
        """The samples, in order."""
        return build_samples(self.selected, self.sandboxes, self.chosen_private, self.replaying)

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
            carried=self._carried if self.nothing_runs else None,
        )

    def _carried(self, state: Any, key: str, task: Any) -> Any:
        origin = self.by_id[str(state.sample_id)].selected.origin
        return carried_score(state, origin.sample.scores if origin else {}, key, task)

    @property
    def scorer_timeout(self) -> int:
        """Seconds a task's scorer may take."""
        configured = configuration.get("scorer_timeout")
        return self.config.scorer_timeout or (int(configured) if configured else DEFAULT_SCORER_TIMEOUT)

    @property
    def fingerprint(self) -> str | None:
        """What the logs of this run have in common, by which they are resumed; a smoke test's are not."""
        if self.smoke:
            return None
        named = {
            "protocol": self.config.protocol.model_copy(update={"name": self.protocol.entry.name}),
        }
        for field in DEFAULT_POLICIES[self.config.kind]:
            side = self.policies["honest" if field == "honest_policy" else "attack"]
            named[field] = FunctionRef(name=side.entry.name, args=dict(side.raw))
        return self.config.model_copy(update=named).fingerprint()

    def check_requirements(self) -> None:
        """Refuse to start without the variables that the environments need.

        Raises:
            StateError: all that is missing.
        """
        if self.nothing_runs:
            return
        check_requirements(
            requirements_of(env_id, one.found.env, one.found.env.docs(one.args))
            for env_id, one in self.environments.items()
        )

    def check_policies(self) -> None:
        """Refuse samples that their policy says it could only fail on.

        Raises:
            ExpectedError: what the policy lacks.
        """
        for sample in self.samples:
            policy = self.policies[sample.selected.stream].make()
            if isinstance(policy, Policy):
                policy.check(sample.view)

    def without_simulator(self) -> list[str]:
        """Environments that declare a simulated internet, which they will not have here."""
        return [
            env_id
            for env_id, one in self.environments.items()
            if env_internet_simulator(one.found.env) is not None
        ]

    def resuming(self, marker: Mapping[str, Any]) -> "RunPlan":
        """The same run as an attempt that continues another."""
        return RunPlan(self.config, self.command, marker, selected=self.selected)

    def with_roles(self, roles: Mapping[str, RoleSpec]) -> "RunPlan":
        """The same run with its models bound."""
        config = self.config.model_copy(update={"model_roles": dict(roles)})
        return RunPlan(config, self.command, self.marker, selected=self.selected)

    def one_of_each_stream(self) -> "RunPlan":
        """The same run cut down to its first honest and its first attack sample, played once."""
        first: dict[Stream, SelectedSample] = {}
        for one in self.selected:
            first.setdefault(one.stream, one)
        config = self.config.model_copy(update={"eval_args": {**self.config.eval_args, "epochs": 1}})
        return RunPlan(config, self.command, selected=list(first.values()), smoke=True)

    def only(self, ident: str) -> "RunPlan":
        """The same run with one of its samples, which keeps all that the whole run decides of it.

        Args:
            ident: the sample's id, a key of `by_id`.
        """
        sample = self.by_id[ident]
        kept = (self.sandboxes, self.scoring)  # made of the whole run, while they can be
        one = copy(self)
        one.selected = [sample.selected]
        one.environments = {sample.selected.env_id: sample.selected.environment}
        one.__dict__.update(samples=[sample], by_id={ident: sample}, sandboxes=kept[0], scoring=kept[1])
        return one

    def sides(self, stream: Stream) -> Sides:
        """Fresh sides for one sample."""
        policy = cast(Policy, self.policies[stream].make())
        protocol = cast(Protocol, self.protocol.make())
        return Sides(policy, protocol, self.config.white)

    def _check_needs(self) -> None:
        """Refuse samples that their policy could only fail on."""
        for one in self.selected:
            entry = self.policies[one.stream].entry
            for role, option in (("main", "-t"), ("side", "-s")):
                if role in entry.metadata.get("needs", ()) and not getattr(one.tasks, f"{role}s"):
                    raise UsageError(
                        f"policy {entry.name} needs a {role} task in every sample: name one with {option}"
                    )

            if one.origin is None and "recording" in entry.metadata.get("needs", ()):
                raise UsageError(f"policy {entry.name} plays a recording: name a log with --from-run")

    def _check_sandbox(self) -> None:
        """Refuse to serve recorded outputs where there are none."""
        if not self.nothing_runs:
            return
        if self.config.task_selection.from_run is None:
            raise UsageError("--sandbox replay serves a recording's outputs: name its log with --from-run")
        if tools := sorted({tool for chosen in self.chosen_private.values() for tool in chosen}):
            raise UsageError(f"--sandbox replay has no outputs for the private tools {', '.join(tools)}")

    def _chosen_private(self) -> dict[Stream, frozenset[str]]:
        """The private tools that each stream's policy uses."""
        _made(self.protocol, "on_input", "on_output")
        chosen: dict[Stream, frozenset[str]] = {}
        for stream, side in self.policies.items():
            chosen[stream] = _made(side, "setup", "frame", "action_model").private_tools
            samples = [one for one in self.selected if one.stream == stream]
            tools = [declared_tools(one.environment.found.env, one.tasks) for one in samples]
            check_private_tools(chosen[stream], self.config.white, tools)
        return chosen


def _made(side: Side, *wanted: str) -> Any:
    """What a side's factory makes, refused when it lacks what is wanted of its kind."""
    made = side.make()
    if not all(hasattr(made, name) for name in wanted):
        kind, name = side.entry.kind, side.entry.name
        raise ValidationError(f"{kind} {name} made {type(made).__name__}, which is no {kind}")
    return made


def _side(entry: Entry[Any], raw: Mapping[str, Any]) -> Side:
    return Side(entry, raw, entry.parse(raw))
