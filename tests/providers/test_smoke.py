"""The smoke test of a run asks every model through its provider and says what is wrong."""

import itertools

import pytest

from control_tower.evals.plan import RunPlan
from control_tower.evals.run_config import FunctionRef, RunConfig, TaskSelection
from control_tower.evals.smoke import checks
from control_tower.models.roles import parse_roles
from control_tower.settings import environments
from tests.providers.conftest import MESSAGES, MODELS, RESPONSES, role
from tests.support.provider_records import Answer, Failure
from tests.support.provider_stub import ProviderStub
from tests.support.toy import ToyEnvironment


def problems(monkeypatch: pytest.MonkeyPatch, untrusted: str) -> dict[str, str]:
    """What the smoke test finds wrong, by check."""
    monkeypatch.setitem(environments.ENVIRONMENTS, "toy", ToyEnvironment())
    config = RunConfig(
        task_selection=TaskSelection(environments=("toy",), main_tasks=("greet",)),
        policy=FunctionRef(name="honest"),
        model_roles=parse_roles((f"untrusted={untrusted}",)),
    )
    return {check.name: check.detail for check in checks(RunPlan(config)) if check.problem}


@MODELS
def test_a_model_that_answers_is_fine(
    model: str, stub: ProviderStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.script(model, [Answer("ready")])
    assert problems(monkeypatch, model) == {}


def test_a_thinking_budget_is_no_problem(stub: ProviderStub, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.script(MESSAGES, [Answer("ready", reasoning="Easy.")])
    assert problems(monkeypatch, role(MESSAGES, reasoning_tokens=2000)) == {}
    assert stub.requests[0].body["thinking"]["budget_tokens"] == 2000


def test_a_model_that_does_not_exist_is_named(stub: ProviderStub, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.script(RESPONSES, [Failure(404, "The model does not exist.", "model_not_found")])
    [(name, detail)] = problems(monkeypatch, RESPONSES).items()
    assert name == "model of untrusted"
    assert "The model does not exist." in detail


def test_a_provider_that_is_down_is_named_soon(stub: ProviderStub, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.script(MESSAGES, itertools.repeat(Failure(529, "Overloaded", retry_after=0.01)))
    [detail] = problems(monkeypatch, MESSAGES).values()
    assert MESSAGES in detail
    assert "Overloaded" in detail
