"""Playing through Inspect's real providers against the stub server."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import EvalSample, read_eval_log

from control_tower.evals.local import LocalRun, run_local
from control_tower.evals.plan import RunPlan
from control_tower.evals.results import outcome
from control_tower.evals.run_config import FunctionRef, RunConfig, TaskSelection
from control_tower.game.white import White
from control_tower.logs.archive import EvalArchive
from control_tower.models.roles import parse_roles
from control_tower.settings import environments
from tests.support.provider_records import Call
from tests.support.provider_stub import ProviderStub
from tests.support.toy import ToyEnvironment

RESPONSES = "openai/gpt-5-nano"
"""OpenAI's Responses API."""
CHAT = "openai/gpt-4o"
"""OpenAI's Chat Completions API."""
MESSAGES = "anthropic/claude-haiku-4-5"
"""Anthropic's Messages API."""

MODELS = pytest.mark.parametrize("model", [RESPONSES, CHAT, MESSAGES])


class Played:
    """A finished run of the toy setting."""

    def __init__(self, run: LocalRun) -> None:
        self.run = run
        self.results = run.results
        self.log = read_eval_log(str(run.results.log), resolve_attachments=True)

    @property
    def sample(self) -> EvalSample:
        """The only sample."""
        assert self.log.samples is not None
        [sample] = self.log.samples
        return sample

    @property
    def outcome(self) -> str:
        """How the only sample ended, as the result table counts it."""
        with EvalArchive.open(self.results.log) as archive:
            [summary] = archive.summaries()
        return outcome(summary)

    @property
    def log_bytes(self) -> bytes:
        """Everything in the log, unpacked."""
        with EvalArchive.open(self.results.log) as archive:
            return b"\n".join(archive.members.read(name) for name in archive.members.members)


Play = Callable[..., Played]


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProviderStub]:
    """The server, with the providers led to it; a request that a real one would refuse fails the test."""
    with ProviderStub() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server
    assert server.faults == []


@pytest.fixture
def play(stub: ProviderStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Play one sample of the toy setting with models given by role, as on the command line."""

    def run(
        untrusted: str,
        side: str | None = None,
        *,
        policy: str | None = None,
        args: dict[str, Any] | None = None,
        env: Any = None,
        white: White | None = None,
        roles: tuple[str, ...] = (),
        **config: Any,
    ) -> Played:
        monkeypatch.setitem(environments.ENVIRONMENTS, "toy", env or ToyEnvironment())
        plan = RunPlan(
            RunConfig(
                task_selection=TaskSelection(
                    environments=("toy",), main_tasks=("greet",), side_tasks=(side,) if side else ()
                ),
                policy=FunctionRef(name=policy or ("attack" if side else "honest"), args=args or {}),
                white=white or White(),
                model_roles=parse_roles((f"untrusted={untrusted}", *roles)),
                **config,
            )
        )
        return Played(run_local(plan, tmp_path / "logs"))

    return run


def role(model: str, **config: Any) -> str:
    """A model with generation settings, as `--model-role` takes it."""
    return json.dumps({"model_name": model, "config": config})


def bash(cmd: str) -> Call:
    """A bash call."""
    return Call("bash", {"cmd": cmd})


SUBMIT = Call("submit")
