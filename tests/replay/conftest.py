"""Playing the toy setting, and playing what came of it again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import EvalLog, EvalSample, read_eval_log

from control_tower.evals.local import run_local
from control_tower.evals.plan import RunPlan
from control_tower.evals.recordings_compare import Comparison, compare
from control_tower.evals.results import Results
from control_tower.evals.run_config import FunctionRef, RunConfig, SandboxConfig, TaskSelection
from control_tower.game.white import White
from control_tower.models.roles import RoleSpec
from tests.support.playing import Played
from tests.support.playing import play as play
from tests.support.toy import TOY_SANDBOX


class Replayed:
    """A finished replay."""

    def __init__(self, plan: RunPlan, results: Results) -> None:
        self.plan = plan
        self.results = results
        self.log: EvalLog = read_eval_log(str(results.log), resolve_attachments=True)
        self.comparison: Comparison = compare(plan, results.log)

    @property
    def samples(self) -> list[EvalSample]:
        """All samples, in the order of the log."""
        assert self.log.samples is not None
        return self.log.samples

    @property
    def sample(self) -> EvalSample:
        """The only sample."""
        [sample] = self.samples
        return sample


Replay = Callable[..., Replayed]


@pytest.fixture
def replay(tmp_path: Path) -> Replay:
    """Replay the log of a run of the toy setting."""

    def run(
        source: Played | Replayed | Path,
        *,
        policy: str = "replay",
        protocol: str = "null-blue-team",
        protocol_args: dict[str, Any] | None = None,
        served: bool = False,
        white: White | None = None,
        roles: dict[str, str] | None = None,
        selection: dict[str, Any] | None = None,
        **config: Any,
    ) -> Replayed:
        path = source if isinstance(source, Path) else Path(source.log.location.removeprefix("file://"))
        plan = RunPlan(
            RunConfig(
                task_selection=TaskSelection(from_run=str(path), **(selection or {})),
                policy=FunctionRef(name=policy),
                protocol=FunctionRef(name=protocol, args=protocol_args or {}),
                white=white or White(),
                model_roles={role: RoleSpec(model_name=name) for role, name in (roles or {}).items()},
                sandbox=SandboxConfig(sandbox="replay" if served else TOY_SANDBOX),
                **config,
            )
        )
        return Replayed(plan, run_local(plan, tmp_path / "replays").results)

    return run
