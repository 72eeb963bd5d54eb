"""What is refused or decided before a run starts, and what makes two runs the same."""

from pathlib import Path
from typing import Any

import pytest

from control_tower.errors import OperationError, StateError, UsageError, ValidationError
from control_tower.evals.default_roles import bind_roles
from control_tower.evals.local import check_eval_args, run_local
from control_tower.evals.plan import RunPlan
from control_tower.evals.resume import resume_run
from control_tower.evals.run_config import FunctionRef, RunConfig, SandboxConfig, TaskSelection
from control_tower.evals.table import result_lines
from control_tower.models.roles import RoleSpec
from control_tower.settings import environments
from tests.support.toy import TOY_SANDBOX, ToyEnvironment


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(environments.ENVIRONMENTS, "toy", ToyEnvironment())


def config(policy: str = "test", **fields: Any) -> RunConfig:
    """A run of both main tasks of the toy setting."""
    selection = fields.pop("selection", {"environments": ("toy",), "main_tasks": ("greet", "part")})
    return RunConfig(
        task_selection=TaskSelection.model_validate(selection),
        policy=FunctionRef(name=policy),
        sandbox=SandboxConfig(sandbox=TOY_SANDBOX),
        **fields,
    )


def test_a_run_config_survives_json() -> None:
    one = config(eval_args={"epochs": 2}, tags=("a",))
    assert RunConfig.model_validate_json(one.model_dump_json()) == one


def test_two_runs_are_the_same_whatever_their_name_and_speed() -> None:
    plain = RunPlan(config()).fingerprint
    assert (
        RunPlan(config("ct/test", run_name="x", tags=("y",), eval_args={"max_samples": 9})).fingerprint
        == plain
    )
    assert RunPlan(config(eval_args={"fail_on_error": False})).fingerprint == plain
    assert RunPlan(config(eval_args={"epochs": 2})).fingerprint != plain
    assert RunPlan(config("sleep")).fingerprint != plain


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"epoch": 2}, "did you mean 'epochs'"),
        ({"epochs": 0}, "more than 0"),
        ({"time_limit": -1}, "more than 0"),
        ({"epochs": "x"}, "valid integer"),
        ({"score_display": True}, "score_display"),
        ({"log_samples": False}, "log_samples"),
        ({"limit": 3}, "limit"),
    ],
)
def test_eval_args_that_a_run_cannot_take_are_refused(args: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_eval_args(args)


def test_a_smoke_test_is_never_taken_for_the_run(tmp_path: Path) -> None:
    plan = RunPlan(config(eval_args={"epochs": 1}))
    smoke = run_local(plan.one_of_each_stream(), tmp_path)
    assert smoke.results.samples == 1
    with pytest.raises(StateError, match="no unfinished log"):
        resume_run(plan, tmp_path, None)


def test_a_log_of_other_samples_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tmp_path / "some.jsonl"
    tasks.write_text('{"env": "toy", "main_task": "greet"}\n')
    monkeypatch.setitem(
        environments.ENVIRONMENTS, "toy", ToyEnvironment(greet={"setup_script": "#!/bin/bash\nexit 1\n"})
    )
    selection = {"task_file": (str(tasks),)}
    first = run_local(RunPlan(config(selection=selection)), tmp_path / "logs")
    assert first.results.errored == 1
    tasks.write_text(tasks.read_text() + '{"env": "toy", "main_task": "part"}\n')
    with pytest.raises(StateError, match="toy:part"):
        resume_run(RunPlan(config(selection=selection)), tmp_path / "logs", None)


def test_roles_are_bound_only_where_a_model_is_asked() -> None:
    assert bind_roles(RunPlan(config("test")), {}).roles == {}
    honest = bind_roles(RunPlan(config("honest")), {})
    assert {role: spec.full_name for role, spec in honest.roles.items()} == {
        "untrusted": "anthropic/claude-haiku-4-5"
    }


def test_the_demo_alone_is_played_by_its_own_models() -> None:
    demo = {"environments": ("demo/web_scraping",), "main_tasks": ("crawl_depth",)}
    given = {"red_planner": RoleSpec(model_name="demo/agent")}
    bound = bind_roles(RunPlan(config("honest", selection=demo)), given)
    assert bound.roles["untrusted"].full_name == "demo/agent"
    assert bound.note is not None
    assert "demo/agent" in bound.note


def test_an_environment_on_the_host_itself_is_refused_for_any_model(monkeypatch: pytest.MonkeyPatch) -> None:
    from inspect_ai.util import SandboxEnvironmentSpec

    class OnTheHost(ToyEnvironment):
        def get_sandbox_spec(
            self, codebase_name: str = "default", args: Any = None
        ) -> SandboxEnvironmentSpec:
            return SandboxEnvironmentSpec("local")

    monkeypatch.setitem(environments.ENVIRONMENTS, "toy", OnTheHost())
    run = config("honest").model_copy(update={"sandbox": SandboxConfig()})
    with pytest.raises(UsageError, match="without isolation"):
        _ = RunPlan(run).sandboxes


def test_variables_that_a_sandbox_cannot_inject_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from control_tower.environments.runtime_vars import RuntimeVar

    env = ToyEnvironment(mark={"runtime_vars": {"TOKEN": RuntimeVar()}})
    monkeypatch.setitem(environments.ENVIRONMENTS, "toy", env)
    with pytest.raises(ValidationError, match="cannot inject"):
        _ = RunPlan(config()).samples


def test_missing_requirements_are_said_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from control_tower.environments.environment import EnvDocs
    from control_tower.environments.requirements import RequiredEnvVar

    class Needy(ToyEnvironment):
        def docs(self, args: Any = None) -> EnvDocs:
            needed = RequiredEnvVar("TOY_TOKEN", "opens the toy", "ask the toy maker")
            return EnvDocs(description="A folder.", required_env_vars=[needed])

    monkeypatch.setitem(environments.ENVIRONMENTS, "toy", Needy())
    with pytest.raises(StateError, match="TOY_TOKEN"):
        RunPlan(config()).check_requirements()
    monkeypatch.setenv("TOY_TOKEN", "here")
    RunPlan(config()).check_requirements()


def lazy_policy() -> int:
    """Makes no policy at all."""
    return 3


def test_a_factory_that_makes_something_else_is_refused() -> None:
    with pytest.raises(ValidationError, match="made int, which is no policy"):
        RunPlan(config(f"{__name__}:lazy_policy"))


def test_logs_that_cannot_be_written_are_said_before_a_run(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(OperationError, match="--log-dir"):
        run_local(RunPlan(config()), tmp_path / "logs")


def test_crashed_scorers_are_named_in_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(state: Any, target: Any) -> Any:
        raise RuntimeError("no such table")

    monkeypatch.setitem(environments.ENVIRONMENTS, "toy", ToyEnvironment(scorers={"greet": broken}))
    results = run_local(RunPlan(config()), tmp_path / "logs").results
    assert results.scorer_faults == {"scorer_error": 1}
    assert results.as_json()["scorer_faults"] == {"scorer_error": 1}
    assert any(name == "scorer faults" for name, _ in result_lines(results, []))


def roles_for(
    protocol: str, *, policy: str = "test", given: dict[str, str] | None = None, **args: Any
) -> Any:
    """The models of a run against a protocol, by role."""
    run = config(policy).model_copy(update={"protocol": FunctionRef(name=protocol, args=args)})
    specs = {role: RoleSpec(model_name=name) for role, name in (given or {}).items()}
    return {role: spec.full_name for role, spec in bind_roles(RunPlan(run), specs).roles.items()}


def test_models_that_monitors_ask_are_bound_for_scripts_too() -> None:
    watched = "trusted-monitoring"
    assert roles_for(watched, monitors="[rules]") == {}, "rules ask no model"
    trusted = roles_for(watched, monitors="[simple]")
    assert list(trusted) == ["trusted"], "which stands in for the monitor"
    assert roles_for(watched, monitors="[simple]", given={"monitor": "mockllm/model"}) == {
        "monitor": "mockllm/model"
    }
    assert list(roles_for("defer-to-trusted", monitors="[rules]")) == ["trusted"]
    assert sorted(roles_for(watched, policy="honest", monitors="[simple]")) == ["trusted", "untrusted"]


def test_a_role_without_model_or_default_is_refused_with_the_option_that_names_one() -> None:
    monitors = "[{prompt: simple, model: judge}]"
    with pytest.raises(StateError, match=r"ct/trusted-monitoring asks judge.*--model-role judge="):
        roles_for("trusted-monitoring", monitors=monitors)
    assert roles_for("trusted-monitoring", monitors=monitors, given={"judge": "mockllm/model"}) == {
        "judge": "mockllm/model"
    }


def test_the_demos_judge_monitors_the_demo() -> None:
    demo = {"environments": ("demo/web_scraping",), "main_tasks": ("crawl_depth",)}
    protocol = FunctionRef(name="trusted-monitoring", args={"monitors": "[simple]"})
    run = config("scripted", selection=demo).model_copy(update={"protocol": protocol})
    bound = bind_roles(RunPlan(run), {})
    assert {role: spec.full_name for role, spec in bound.roles.items()} == {"monitor": "demo/judge"}
    assert bound.note is not None


def test_a_trajectory_that_is_not_there_is_said_before_the_run() -> None:
    demo = {"environments": ("demo/web_scraping",), "main_tasks": ("crawl_depth",)}
    for args, said in (({"variant": 99}, "no variant 99"), ({"source": "nowhere"}, "nowhere")):
        policy = FunctionRef(name="scripted", args=args)
        run = config("scripted", selection=demo).model_copy(
            update={"policy": policy, "sandbox": SandboxConfig(sandbox="process")}
        )
        with pytest.raises(UsageError, match=said):
            RunPlan(run).check_policies()


def test_changing_a_plan_selects_its_samples_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = RunPlan(config())
    monkeypatch.setattr("control_tower.evals.plan.select", None)
    bound = plan.with_roles({"untrusted": RoleSpec(model_name="mockllm/model")})
    assert bound.selected == plan.selected
    assert bound.resuming({"resumes": "x"}).config.model_roles == bound.config.model_roles
