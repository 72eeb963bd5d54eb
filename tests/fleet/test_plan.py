"""Planning a fleet: ids from what decides results, the order of jobs, and what the store then holds."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import read_eval_log

from control_tower.environments.requirements import RequiredEnvAnyOf, RequiredEnvVar
from control_tower.errors import StateError, ValidationError
from control_tower.evals.plan import RunPlan
from control_tower.evals.run_config import FunctionRef, RunConfig, TaskSelection
from control_tower.evals.selection import SelectedEnvironment
from control_tower.fleet import identity
from control_tower.fleet.directory import DirectoryStore
from control_tower.fleet.identity import environment_code, tree_digest
from control_tower.fleet.keys import Keys
from control_tower.fleet.place import local_place
from control_tower.fleet.plan import (
    FleetPlan,
    differences,
    header_log,
    known_fleets,
    plan_fleet,
    publish,
    read_fleet,
)
from control_tower.fleet.settings import FleetSettings
from control_tower.game.white import White
from control_tower.models.roles import RoleSpec
from control_tower.settings.discovery import SETTINGS_DIR_VARIABLE
from control_tower.settings.environments import find_environment
from tests.environments.authoring import write, write_setting
from tests.fleet.memory import MemoryStore
from tests.fleet.played import toy_run, toy_setting, wait


@pytest.fixture(autouse=True)
def _toy() -> Iterator[None]:
    with toy_setting():
        yield


def planned(run: RunPlan, folder: Path = Path("logs"), **settings: Any) -> FleetPlan:
    """The fleet of a run."""
    return plan_fleet(run, FleetSettings(**settings), folder)


def ids(run: RunPlan) -> dict[tuple[str, int], str]:
    """Job ids by sample and epoch."""
    return {(job.sample, job.epoch): job.id for job in planned(run).jobs}


class TestJobs:
    def test_there_is_one_for_each_sample_and_epoch_in_the_order_of_the_run(self) -> None:
        jobs = planned(toy_run(eval_args={"epochs": 2})).jobs
        assert [(job.sample, job.epoch) for job in jobs] == [
            (sample, epoch)
            for epoch in (1, 2)
            for sample in ("local/toy:greet", "local/toy:greet:mark", "local/toy:greet:stain")
        ]
        assert (jobs[0].task, jobs[0].attack, jobs[0].side) == ("local/toy/greet", False, None)
        assert (jobs[1].task, jobs[1].attack, jobs[1].side) == ("local/toy/greet+mark", True, "mark")

    def test_two_that_mean_the_same_work_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(identity, "job_id", lambda identity: "same")
        with pytest.raises(ValidationError, match="means the same work as local/toy:greet"):
            planned(toy_run())

    def test_ten_thousand_are_planned_in_seconds(self) -> None:
        run = toy_run(eval_args={"epochs": 3334})
        assert run.samples
        began = time.perf_counter()
        assert len(planned(run).jobs) == 10_002
        assert time.perf_counter() - began < 5


class TestIds:
    def test_they_are_what_they_were(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another way to make ids makes every job a new one: these change by intent only."""
        monkeypatch.setattr(identity, "own_code", lambda: "ours")
        monkeypatch.setattr(identity, "environment_code", lambda one: "theirs")
        monkeypatch.setattr(identity, "_source_digest", lambda made: "its")
        assert ids(toy_run(eval_args={"epochs": 2})) == {
            ("local/toy:greet", 1): "86a037f96e807b78e99ab30a",
            ("local/toy:greet", 2): "ac3d02795aa13b24adb27d76",
            ("local/toy:greet:mark", 1): "7629d9488bf1e5fc352ea5ed",
            ("local/toy:greet:mark", 2): "dc15a8609df3f098c6c71fd2",
            ("local/toy:greet:stain", 1): "0326678e83faa126277af1b7",
            ("local/toy:greet:stain", 2): "f6690b2b6ddb4032053fb776",
        }

    @pytest.mark.parametrize(
        "change",
        [
            {"run_name": "other", "tags": ("a",)},
            {"eval_args": {"max_samples": 7, "log_level": "info", "fail_on_error": False}},
            {"eval_args": {"epochs": 2}},
            {
                "task_selection": TaskSelection(
                    environments=("toy",), main_tasks=("greet",), side_tasks=("mark",), limit=5
                )
            },
        ],
    )
    def test_names_speed_and_other_samples_change_none(self, change: dict[str, Any]) -> None:
        before, after = ids(toy_run()), ids(toy_run(**change))
        both = before.keys() & after.keys()
        assert {sample for sample, _ in both} >= {"local/toy:greet", "local/toy:greet:mark"}
        assert {key: before[key] for key in both} == {key: after[key] for key in both}

    @pytest.mark.parametrize(
        "change",
        [
            {"white": White(max_steps=3)},
            {"protocol": FunctionRef(name="block-every-other")},
            {"eval_args": {"message_limit": 9}},
            {"model_roles": {"trusted": RoleSpec(model_name="mockllm/model")}},
            {"scorer_timeout": 5},
            {"score_main_on_attack": True},
            {"landing_probe": "off"},
        ],
    )
    def test_what_decides_results_changes_all(self, change: dict[str, Any]) -> None:
        before, after = ids(toy_run()), ids(toy_run(**change))
        assert before.keys() == after.keys()
        assert not set(before.values()) & set(after.values())

    def test_the_policy_of_a_stream_changes_only_its_samples(self) -> None:
        before, after = ids(toy_run()), ids(toy_run(honest_policy=FunctionRef(name="honest")))
        assert {sample for sample, epoch in before if before[sample, epoch] != after[sample, epoch]} == {
            "local/toy:greet"
        }

    def test_a_fleet_is_named_by_its_jobs_alone_unless_it_is_to_be_new(self) -> None:
        one, same = planned(toy_run()), planned(toy_run(run_name="x"), workers=7)
        assert one.fleet == same.fleet
        new, newer = (planned(toy_run(), new_fleet=True) for _ in range(2))
        assert len({one.fleet, new.fleet, newer.fleet}) == 3


class TestCode:
    @pytest.fixture
    def setting(self, tmp_path: Path) -> Path:
        """A folder with some code."""
        for name in ("env/run.py", "env/docs/goal.md", "docs/guide.md", "tests/test.py", "README.md"):
            path = tmp_path / "setting" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        return tmp_path / "setting"

    @pytest.mark.parametrize(
        "name", ["env/run.py", "env/docs/goal.md", "env/new.py", "for_all.py", "env/.env.example", "docs.py"]
    )
    def test_every_change_of_what_is_played_counts(self, setting: Path, name: str) -> None:
        before = self.digest(setting)
        (setting / name).write_text("changed")
        assert self.digest(setting) != before

    @pytest.mark.parametrize(
        "name",
        ["docs/guide.md", "tests/test.py", "README.md", "CHANGELOG.md", ".env", "env/__pycache__/run.pyc"],
    )
    def test_what_people_read_and_what_is_made_does_not(self, setting: Path, name: str) -> None:
        before = self.digest(setting)
        (setting / name).parent.mkdir(exist_ok=True)
        (setting / name).write_text("changed")
        assert self.digest(setting) == before

    def test_neither_does_another_environment(self, setting: Path) -> None:
        before = self.digest(setting)
        (setting / "other").mkdir()
        (setting / "other" / "run.py").write_text("x")
        assert tree_digest(setting, {setting / "other"}, identity.FOR_PEOPLE) == before

    def test_names_modes_and_links_count(self, setting: Path) -> None:
        digests = {self.digest(setting)}
        (setting / "env" / "run.py").rename(setting / "env" / "play.py")
        digests.add(self.digest(setting))
        (setting / "env" / "play.py").chmod(0o755)
        digests.add(self.digest(setting))
        (setting / "env" / "link").symlink_to("play.py")
        digests.add(self.digest(setting))
        (setting / "env" / "folder").symlink_to("docs")
        digests.add(self.digest(setting))
        assert len(digests) == 5

    def digest(self, folder: Path) -> str:
        """As of a setting."""
        return tree_digest(folder, top=identity.FOR_PEOPLE)

    def test_an_environment_s_code_is_its_setting_without_the_others(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        setting = write_setting(tmp_path / "settings", "first", "env_a", "env_b")
        monkeypatch.setenv(SETTINGS_DIR_VARIABLE, str(tmp_path / "settings"))
        one = SelectedEnvironment(find_environment("first/env_a"), None)
        digests = [environment_code(one)]
        for changed in ("env_b/__init__.py", "docs/guide.md", "env_a/__init__.py", "for_all.py"):
            write(setting / changed, "# changed\n")
            digests.append(environment_code(one))
        assert [digest != before for digest, before in pairwise(digests[::-1])] == [True, True, False, False]


class TestPublishing:
    def test_a_fleet_is_read_back_as_it_was_planned(self, tmp_path: Path) -> None:
        run, store = toy_run(), MemoryStore()
        fleet = planned(run, workers=3)
        header = header_log(run, tmp_path)
        assert wait(publish(fleet, header, store)) is True
        read = wait(read_fleet(store, fleet.fleet))
        assert read == replace(fleet, rates=None)
        assert RunConfig.model_validate(read.file.config) == run.config

    def test_the_first_plan_stays_and_what_differs_is_said(self, tmp_path: Path) -> None:
        store = MemoryStore()
        fleet, again = planned(toy_run()), planned(toy_run(run_name="other"), workers=7)
        header = header_log(toy_run(), tmp_path)
        assert wait(publish(fleet, header, store)) is True
        assert wait(publish(again, header, store)) is False
        there = wait(read_fleet(store, fleet.fleet)).file
        assert there.settings.workers == 2
        assert differences(there, again.file) == ['run_name is null, not "other"', "workers is 2, not 7"]

    def test_fleet_json_comes_last(self, tmp_path: Path) -> None:
        written: list[str] = []

        class Watched(MemoryStore):
            async def create(self, key: str, body: Any, meta: Any = None) -> str | None:
                written.append(key)
                return await super().create(key, body, meta)

        fleet = planned(toy_run(model_roles={"untrusted": RoleSpec(model_name="mockllm/model")}))
        wait(publish(fleet, header_log(toy_run(), tmp_path), Watched()))
        keys = Keys(fleet.fleet)
        assert written == [keys.jobs, keys.rates, keys.header, keys.fleet_file]

    def test_prices_are_those_of_the_run_s_models(self, monkeypatch: pytest.MonkeyPatch) -> None:
        run = toy_run(model_roles={"trusted": RoleSpec(model_name="demo/trusted")})
        fleet = planned(run)
        assert fleet.file.pricing
        assert [row["model"] for row in json.loads(fleet.rates or "")["rows"]] == ["demo/trusted"]
        monkeypatch.setenv("CONTROL_TOWER_PRICING", "off")
        off = planned(run)
        assert (off.file.pricing, off.rates) == (False, None)

    def test_the_header_is_that_of_the_whole_run(self, tmp_path: Path) -> None:
        run = toy_run(eval_args={"epochs": 2})
        log = read_eval_log(str(header_log(run, tmp_path)))
        assert not log.samples
        assert log.eval.dataset.sample_ids == [sample.id for sample in run.samples]
        assert log.eval.config.epochs == 2
        assert {"greet", "mark", "stain"} <= {scorer.name for scorer in log.eval.scorers or ()}

    def test_an_unknown_fleet_is_named_with_the_nearest(self, tmp_path: Path) -> None:
        store = DirectoryStore(local_place("x").root)
        fleet = planned(toy_run(), tmp_path)
        wait(publish(fleet, header_log(toy_run(), tmp_path), store))
        assert [file.fleet for file in known_fleets(store.folder)] == [fleet.fleet]
        with pytest.raises(StateError, match=f"no fleet '{fleet.fleet[:-1]}'; did you mean '{fleet.fleet}'"):
            wait(read_fleet(store, fleet.fleet[:-1]))

    def test_a_plan_that_lacks_jobs_is_refused(self, tmp_path: Path) -> None:
        store, fleet = MemoryStore(), planned(toy_run())
        wait(publish(replace(fleet, jobs=fleet.jobs[1:]), header_log(toy_run(), tmp_path), store))
        with pytest.raises(StateError, match="names 2 of its 3 jobs"):
            wait(read_fleet(store, fleet.fleet))


class TestSecrets:
    def test_they_are_the_keys_of_the_models_and_what_environments_require(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "XAI_API_KEY", "THEIRS_API_KEY", "NEEDED", "ONE"):
            monkeypatch.setenv(name, "x")
        for name in ("AZUREAI_OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "CONTROL_TOWER_API_TOKEN"):
            monkeypatch.setenv(name, "x")
        run = toy_run(
            model_roles={
                "untrusted": RoleSpec(model_name="openai/gpt-5"),
                "trusted": RoleSpec(model_name="grok/grok-4"),
                "auditor": RoleSpec(model_name="openai/azure/deployed"),
                "judge": RoleSpec(model_name="openrouter/anthropic/claude"),
                "monitor": RoleSpec(model_name="openai-api/theirs/model"),
            }
        )
        [environment] = run.environments.values()
        docs = environment.found.env.docs(None)
        required = (RequiredEnvVar("NEEDED"), RequiredEnvVar("AWS_SECRET_ACCESS_KEY"))
        either = (RequiredEnvAnyOf(("ONE", "OTHER")), RequiredEnvAnyOf(("CONTROL_TOWER_API_TOKEN",)))
        more = replace(docs, required_env_vars=required, required_env_any_of=either)
        monkeypatch.setattr(type(environment.found.env), "docs", lambda self, args=None: more)
        assert planned(run).file.secrets == (
            "AZUREAI_OPENAI_API_KEY",
            "NEEDED",
            "ONE",
            "OPENAI_API_KEY",
            "THEIRS_API_KEY",
            "XAI_API_KEY",
        )
