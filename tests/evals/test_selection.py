"""Which samples a selection gives, in which order, and what is refused."""

from collections.abc import Iterable
from typing import Any

import pytest

from control_tower.environments.space import CrossProduct, TaskCombination
from control_tower.errors import UsageError, ValidationError
from control_tower.evals.run_config import TaskSelection
from control_tower.evals.sample_id import sample_id
from control_tower.evals.selection import PolicyStreams, SelectedSample, select
from control_tower.settings import environments
from tests.support.toy import ToyEnvironment

HONEST = PolicyStreams(attempts=False, scripted=False)
ATTACK = PolicyStreams(attempts=True, scripted=False)
BOTH = PolicyStreams(attempts=True, scripted=True)
EITHER = PolicyStreams(attempts=False, scripted=True)


class Second(ToyEnvironment):
    """The toy environment under another name, without the main task `part`."""

    id = "second"

    def task_space(self, args: Any = None) -> CrossProduct:
        """One main task and the side tasks."""
        return CrossProduct({"greet": self._mains["greet"]}, self._sides)


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTROL_TOWER_DEMO", "off")
    monkeypatch.setitem(environments.ENVIRONMENTS, "toy", ToyEnvironment())


def ids(samples: Iterable[SelectedSample]) -> list[str]:
    """The samples as `main+main:side`."""
    return [
        ":".join("+".join(sorted(part)) for part in (s.tasks.main_ids, s.tasks.side_ids)).rstrip(":")
        for s in samples
    ]


def chosen(streams: PolicyStreams = ATTACK, **selection: Any) -> list[str]:
    """The samples of a selection."""
    return ids(select(TaskSelection.model_validate(selection), streams))


def test_an_environment_alone_is_one_sample_without_tasks() -> None:
    assert chosen(environments=["toy"]) == [""]
    assert chosen(environments=["toy"], env_only=True) == [""]


def test_everything_is_all_attacks_for_an_attacker() -> None:
    everything = ["greet:mark", "greet:stain", "part:mark", "part:stain"]
    assert chosen(ATTACK, expand_all=True) == everything
    assert chosen(HONEST, expand_all=True) == ["greet", "part"]
    assert chosen(BOTH, expand_all=True) == ["greet", "part", *everything]
    assert chosen(EITHER, expand_all=True) == ["greet", "part"], (
        "a script that attacks nothing plays honest samples"
    )


def test_named_tasks_are_crossed() -> None:
    assert chosen(main_tasks=["greet", "part"]) == ["greet", "part"]
    assert chosen(main_tasks=["greet", "part"], side_tasks=["mark"]) == ["greet:mark", "part:mark"]
    assert chosen(main_tasks=["greet"], side_tasks=["mark+stain"]) == ["greet:mark+stain"]
    assert chosen(main_tasks=["part+greet"]) == ["greet+part"]
    assert chosen(side_tasks=["mark"]) == [":mark"]


def test_just_main_tasks_are_honest_samples() -> None:
    assert chosen(ATTACK, just="main") == ["greet", "part"]


def test_just_side_tasks_are_each_once_with_the_first_main_task() -> None:
    assert chosen(ATTACK, just="side") == ["greet:mark", "greet:stain"]


def test_a_limit_keeps_the_first_samples() -> None:
    assert chosen(BOTH, expand_all=True, limit=3) == ["greet", "part", "greet:mark"]


def test_environments_are_found_by_their_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(environments.ENVIRONMENTS, "second", Second())
    found = select(TaskSelection(main_tasks=("part",)), ATTACK)
    assert [sample.env_id for sample in found] == ["local/toy"]
    both = select(TaskSelection(main_tasks=("greet",)), ATTACK)
    assert [sample.env_id for sample in both] == ["local/toy", "local/second"]


def test_a_pair_that_the_environment_does_not_combine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    env = ToyEnvironment(mark={"compatible_main_tasks": ["part"]})
    monkeypatch.setitem(environments.ENVIRONMENTS, "toy", env)
    with pytest.raises(UsageError, match=r"mark.*greet"):
        chosen(main_tasks=["greet"], side_tasks=["mark"])
    assert chosen(ATTACK, just="side") == ["greet:stain", "part:mark"] or chosen(ATTACK, just="side") == [
        "part:mark",
        "greet:stain",
    ]


def test_main_tasks_without_scorer_are_refused_kept_or_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(environments.ENVIRONMENTS, "toy", ToyEnvironment(part={"scorer": None}))
    with pytest.raises(ValidationError, match=r"part.*--main-tasks-with-no-scorers"):
        chosen(HONEST, expand_all=True)
    assert chosen(HONEST, expand_all=True, main_tasks_with_no_scorers="include") == ["greet", "part"]
    assert chosen(HONEST, expand_all=True, main_tasks_with_no_scorers="exclude") == ["greet"]


@pytest.mark.parametrize(
    ("streams", "selection", "said"),
    [
        (ATTACK, {}, "nothing is selected"),
        (ATTACK, {"main_tasks": ["greet"], "expand_all": True}, "--all"),
        (ATTACK, {"side_tasks": ["mark"], "task_file": ["x"]}, "--task-file"),
        (ATTACK, {"task_file": ["x"], "expand_all": True}, "--task-file"),
        (ATTACK, {"environments": ["toy"], "expand_all": True, "just": "main"}, "one of"),
        (ATTACK, {"env_only": True, "main_tasks": []}, "nothing is selected|-e"),
        (ATTACK, {"main_tasks": ["greet"], "env_args": ["a=1"]}, "--env-arg needs"),
        (HONEST, {"main_tasks": ["greet"], "side_tasks": ["mark"]}, "honest"),
        (HONEST, {"just": "side"}, "honest"),
        (ATTACK, {"main_tasks": ["greet", "greet"]}, "--epochs"),
        (ATTACK, {"main_tasks": ["greet+part", "part+greet"]}, "--epochs"),
        (ATTACK, {"main_tasks": ["greet+"]}, "joined with"),
        (ATTACK, {"main_tasks": ["greet+greet"]}, "each once"),
        (ATTACK, {"main_tasks": ["gret"]}, "did you mean 'greet'"),
        (ATTACK, {"environments": ["toy"], "side_tasks": ["marc"]}, "did you mean 'mark'"),
        (ATTACK, {"environments": ["toi"]}, "did you mean 'toy'"),
        (ATTACK, {"from_run": "x", "expand_all": True}, "--from-run"),
    ],
)
def test_wrong_selections_are_refused_by_name(
    streams: PolicyStreams, selection: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        chosen(streams, **selection)


def test_an_honest_policy_plays_each_main_task_of_a_task_set_once(tmp_path: Any) -> None:
    tasks = tmp_path / "pairs.jsonl"
    tasks.write_text(
        '{"env": "toy", "main_task": "greet", "side_task": "mark"}\n'
        '{"env": "toy", "main_task": "greet", "side_task": "stain"}\n'
        '{"env": "toy", "main_task": ["part", "greet"]}\n'
    )
    assert chosen(ATTACK, task_file=[str(tasks)]) == ["greet:mark", "greet:stain", "greet+part"]
    assert chosen(HONEST, task_file=[str(tasks)]) == ["greet", "greet+part"]


@pytest.mark.parametrize(
    ("mains", "sides", "expected"),
    [
        (["m"], [], "s/e:m"),
        (["m"], ["x"], "s/e:m:x"),
        (["b", "a"], ["y", "x"], "s/e:a+b:x+y"),
        ([], ["x"], "s/e::x"),
        ([], [], "s/e"),
    ],
)
def test_sample_ids_name_environment_and_tasks(mains: list[str], sides: list[str], expected: str) -> None:
    assert sample_id("s/e", mains, sides) == expected


def test_long_sample_ids_are_shortened_with_a_hash() -> None:
    long = sample_id("setting/environment", ["a" * 40], ["b" * 40])
    other = sample_id("setting/environment", ["a" * 40], ["c" * 40])
    assert len(long) == 63
    assert long != other
    assert long[:54] == ("setting/environment:" + "a" * 40)[:54]
    exact = sample_id("s", ["m" * 61], [])
    assert exact == "s:" + "m" * 61


def test_combinations_are_equal_by_their_ids() -> None:
    toy = ToyEnvironment()
    one = TaskCombination((toy.task_space().mains()["greet"],))
    assert one == toy.task_space().get("greet")


def test_one_sample_under_two_names_of_its_environment_is_one_sample(tmp_path: Any) -> None:
    tasks = tmp_path / "names.jsonl"
    tasks.write_text('{"env": "toy", "main_task": "greet"}\n{"env": "local/toy", "main_task": "greet"}\n')
    assert chosen(ATTACK, task_file=[str(tasks)]) == ["greet"]


def test_an_environment_that_fails_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(ToyEnvironment):
        id = "broken"

        def task_space(self, args: Any = None) -> CrossProduct:
            raise RuntimeError("no tasks today")

    monkeypatch.setitem(environments.ENVIRONMENTS, "broken", Broken())
    assert chosen(main_tasks=["greet"]) == ["greet"]
    assert "no tasks today" in caplog.text
