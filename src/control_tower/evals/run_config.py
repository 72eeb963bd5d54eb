"""RunConfig: everything that decides what a run does, as one JSON-serialisable record."""

import hashlib
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from control_tower.game.white import White
from control_tower.models.roles import RoleSpec

NoScorers = Literal["error", "include", "exclude"]
LandingProbe = Literal["off", "each-action", "declared"]


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

    kind: Literal["eval"] = "eval"
    task_selection: TaskSelection
    policy: FunctionRef = FunctionRef(name="ct/honest")
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

    def fingerprint(self) -> str:
        """SHA-256 of what decides the samples: not the run's name, tags, speed or what errors do to it."""
        record = self.model_dump(mode="json", exclude={"run_name", "tags"})
        for key in list(record["eval_args"]):
            if key.startswith(("max_", "log_")) or key in ("fail_on_error", "continue_on_fail"):
                del record["eval_args"][key]
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()

    @property
    def epochs(self) -> int:
        """How often each sample is played."""
        return int(self.eval_args.get("epochs") or 1)
