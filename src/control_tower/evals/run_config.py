"""RunConfig: everything that decides what a run does, as one JSON-serialisable record."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from control_tower.game.white import White
from control_tower.models.roles import RoleSpec

NoScorers = Literal["error", "include", "exclude"]
LandingProbe = Literal["off", "each-action", "declared"]
Kind = Literal["eval", "control_eval"]
Stream = Literal["honest", "attack"]
"""The samples without side tasks, and those with."""

DEFAULT_POLICIES: dict[Kind, dict[str, str]] = {
    "eval": {"policy": "ct/honest"},
    "control_eval": {"honest_policy": "ct/honest", "attack_policy": "ct/attack"},
}
"""Who plays when the user names nobody: the policy fields that each kind of run has."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class FunctionRef(_Part):
    """A registered policy or protocol and its arguments as they were given."""

    name: str
    args: dict[str, Any] = Field(default_factory=dict)


class TaskSelection(_Part):
    """Which samples a run has."""

    environments: tuple[str, ...] = ()
    main_tasks: tuple[str, ...] = ()
    """Main tasks, `a+b` for several in one sample."""
    side_tasks: tuple[str, ...] = ()
    """Side tasks, likewise; each is combined with each of the main tasks."""
    task_file: tuple[str, ...] = ()
    """Task sets, by name or path."""
    from_run: str | None = None
    limit: int | None = Field(default=None, ge=1)
    expand_all: bool = False
    just: Literal["main", "side"] | None = None
    """All main tasks alone, or each side task once with the first main task it accepts."""
    env_only: bool = False
    main_tasks_with_no_scorers: NoScorers = "error"
    env_args: tuple[str, ...] = ()
    """`key=value` or `env:key=value`."""


class SandboxConfig(_Part):
    """Where samples run."""

    sandbox: str = "auto"
    """`auto`, `bwrap`, `docker`, `process`, or the name of an installed Inspect sandbox."""
    sandbox_args: dict[str, Any] = Field(default_factory=dict)


class RunConfig(_Part):
    """One run: two equal records ask for the same samples, played in the same way."""

    kind: Kind = "eval"
    """`eval`: one policy plays every sample; `control_eval`: each stream has its own."""
    task_selection: TaskSelection
    policy: FunctionRef | None = None
    honest_policy: FunctionRef | None = None
    attack_policy: FunctionRef | None = None
    protocol: FunctionRef = FunctionRef(name="ct/null-blue-team")
    white: White = White()
    model_roles: dict[str, RoleSpec] = Field(default_factory=dict)
    sandbox: SandboxConfig = SandboxConfig()
    scorer_timeout: int | None = Field(default=None, ge=1)
    """Seconds a task's scorer may take; None is the default."""
    score_main_on_attack: bool = False
    landing_probe: LandingProbe = "declared"
    eval_args: dict[str, Any] = Field(default_factory=dict)
    """Fields of Inspect's EvalConfig."""
    run_name: str | None = None
    tags: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _with_policies(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        given = {str(key): value for key, value in cast(Mapping[Any, Any], data).items()}
        for field, name in DEFAULT_POLICIES.get(given.get("kind", "eval"), {}).items():
            if given.get(field) is None:
                given[field] = FunctionRef(name=name)
        return given

    @model_validator(mode="after")
    def _only_its_policies(self) -> Self:
        if given := [field for field in sorted(self.absent) if getattr(self, field) is not None]:
            raise ValueError(f"a run of kind {self.kind} has no {given[0]}")
        return self

    @property
    def absent(self) -> frozenset[str]:
        """The fields that only runs of another kind have."""
        every = {field for fields in DEFAULT_POLICIES.values() for field in fields}
        return frozenset(every - DEFAULT_POLICIES[self.kind].keys())

    @property
    def policies(self) -> dict[Stream, FunctionRef]:
        """Who plays each stream."""
        honest, attack = self.honest_policy or self.policy, self.attack_policy or self.policy
        if honest is None or attack is None:
            raise RuntimeError("a run has a policy for each stream")
        return {"honest": honest, "attack": attack}

    def fingerprint(self) -> str:
        """SHA-256 of what decides the samples: not the run's name, tags, speed or what errors do to it."""
        record = self.model_dump(mode="json", exclude={"run_name", "tags", *self.absent})
        record["eval_args"] = self.deciding_args
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()

    @property
    def deciding_args(self) -> dict[str, Any]:
        """Those of `eval_args` that decide the samples: not speed, what is logged, or what errors do."""
        return {
            key: value
            for key, value in self.eval_args.items()
            if not key.startswith(("max_", "log_")) and key not in ("fail_on_error", "continue_on_fail")
        }

    @property
    def epochs(self) -> int:
        """How often each sample is played."""
        return int(self.eval_args.get("epochs") or 1)
