"""Playing the toy setting in this process, and reading back what the log says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import EvalLog, EvalSample, read_eval_log

from control_tower.evals.local import run_local
from control_tower.evals.plan import RunPlan
from control_tower.evals.run_config import FunctionRef, RunConfig, SandboxConfig, TaskSelection
from control_tower.game.white import White
from control_tower.models.roles import RoleSpec
from control_tower.settings import environments
from tests.support.toy import TOY_SANDBOX, ToyEnvironment


class Played:
    """A finished run of the toy setting."""

    def __init__(self, plan: RunPlan, log: EvalLog) -> None:
        self.plan = plan
        self.log = log

    @property
    def sample(self) -> EvalSample:
        """The only sample."""
        assert self.log.samples is not None
        [sample] = self.log.samples
        return sample


Play = Callable[..., Played]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Play a selection of the toy setting and read its log."""

    def run(
        main: str | None = "greet",
        side: str | None = None,
        *,
        policy: str = "honest",
        args: dict[str, Any] | None = None,
        protocol: str = "null-blue-team",
        protocol_args: dict[str, Any] | None = None,
        untrusted: str | None = None,
        env: Any = None,
        white: White | None = None,
        roles: dict[str, str] | None = None,
        **config: Any,
    ) -> Played:
        monkeypatch.setitem(environments.ENVIRONMENTS, "toy", env or ToyEnvironment())
        models = {**({"untrusted": untrusted} if untrusted else {}), **(roles or {})}
        plan = RunPlan(
            RunConfig(
                task_selection=TaskSelection(
                    environments=("toy",),
                    main_tasks=(main,) if main else (),
                    side_tasks=(side,) if side else (),
                ),
                policy=FunctionRef(name=policy, args=args or {}),
                protocol=FunctionRef(name=protocol, args=protocol_args or {}),
                white=white or White(),
                model_roles={role: RoleSpec(model_name=name) for role, name in models.items()},
                sandbox=SandboxConfig(sandbox=TOY_SANDBOX),
                **config,
            )
        )
        run = run_local(plan, tmp_path / "logs")
        return Played(plan, read_eval_log(str(run.results.log), resolve_attachments=True))

    return run
