"""Which values are taken out of a log, and out of which logs."""

from pathlib import Path

import pytest

from control_tower.evals.local import run_local
from control_tower.evals.plan import RunPlan
from control_tower.evals.resume import resume_run
from control_tower.evals.run_config import FunctionRef, RunConfig, SandboxConfig, TaskSelection
from control_tower.evals.secret_names import log_redactor
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.zip_writer import new_archive
from control_tower.models.roles import parse_roles
from control_tower.settings import environments
from tests.support.toy import TOY_SANDBOX, ToyEnvironment

LONG = "0123456789-abcdefg"


def masked(text: str, **values: str) -> str:
    return log_redactor(values).data(text.encode()).decode()


@pytest.mark.parametrize("name", ["SHOP_TOKEN", "OPENAI_API_KEY", "DB_PASSWORD"])
def test_long_values_of_what_is_named_a_secret(name: str) -> None:
    assert masked(f"it is {LONG}.", **{name: LONG}) == "it is ***."


def test_short_values_and_other_variables_stay() -> None:
    text = f"postgres at https://api.example/v1 in {LONG}"
    values = {"DB_PASSWORD": "postgres", "OPENAI_BASE_URL": "https://api.example/v1", "DATA_FOLDER": LONG}
    assert masked(text, **values) == text
    assert not log_redactor(values)


def test_an_address_with_a_password_and_the_password_alone() -> None:
    address = f"postgres://shop:{LONG}@db/shop"
    assert masked(f"{address} and {LONG}", SHOP_DSN=address) == "*** and ***"


def test_short_lines_of_a_long_secret_stay() -> None:
    key = f"-----BEGIN-----\n{LONG}\n"
    assert masked(f"-----BEGIN----- {LONG}", SIGNING_KEY=key) == "-----BEGIN----- ***"


def test_a_resumed_run_takes_them_out_of_what_was_there_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", LONG)
    broken = ToyEnvironment(part={"setup_script": "#!/bin/bash\nexit 1\n"})
    monkeypatch.setitem(environments.ENVIRONMENTS, "toy", broken)
    first = run_local(plan(), tmp_path / "logs").results.log
    with EvalArchive.open(first) as archive:
        held = {name: archive.members.read(name) for name in archive.members.members}
    shown = SampleKey("local/toy:greet", 1).member
    held[shown] = held[shown].replace(b'"target":', f'"note":"{LONG}","target":'.encode(), 1)
    with new_archive(first) as writer:
        for name, data in held.items():
            writer.add(name, data)
    monkeypatch.setitem(environments.ENVIRONMENTS, "toy", ToyEnvironment())

    resumed = resume_run(plan(), tmp_path / "logs", None).results

    assert (resumed.samples, resumed.errored) == (2, 0)
    with EvalArchive.open(resumed.log) as archive:
        assert archive.sample(SampleKey("local/toy:greet", 1))["note"] == "***"


def plan() -> RunPlan:
    return RunPlan(
        RunConfig(
            task_selection=TaskSelection(environments=("toy",), main_tasks=("greet", "part")),
            policy=FunctionRef(name="test"),
            model_roles=parse_roles(("untrusted=openai/gpt-5",)),
            sandbox=SandboxConfig(sandbox=TOY_SANDBOX),
        )
    )
