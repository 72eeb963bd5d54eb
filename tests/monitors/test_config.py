"""How monitors are named: prompts, presets, factories and files; everything that means nothing is refused."""

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

from control_tower.cli.app import main
from control_tower.errors import ExpectedError, UsageError, ValidationError
from control_tower.monitors.config import (
    CombineRule,
    Monitor,
    parse_combine,
    parse_monitors,
    roles_of,
    sources_of,
)
from control_tower.monitors.prompt import load_prompt, packaged_prompts
from control_tower.monitors.rules import DEFAULT_RULES
from control_tower.protocols.registry import protocols

FACTORY = '''
"""Monitors of a test."""

from inspect_ai.scorer import Score

from control_tower.monitors.registry import monitors


def plain(weight: int = 3):
    async def judge(messages, *, task_description):
        return Score(value=weight)

    return judge


@monitors.register(roles=("judge",))
def asking_monitor():
    async def judge(messages):
        return Score(value=1)

    return judge


def curious():
    async def judge(messages, *, side_task):
        return Score(value=1)

    return judge


def positional():
    async def judge(messages, task_description):
        return Score(value=1)

    return judge


def nothing():
    return 7
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a prompt, presets and factories."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.md").write_text("Is {action} odd? Write {{}} for nothing.")
    (tmp_path / "bad.md").write_text("Is {acton} odd? {transcript}")
    (tmp_path / "blind.md").write_text("Is it odd?")
    (tmp_path / "braces.md").write_text('Answer {"score": 1} about {action}')
    (tmp_path / "open.md").write_text("Is {action odd?")
    (tmp_path / "twice.md").write_text("{action} and {action}")
    (tmp_path / "shape.md").write_text("{action!r}")
    (tmp_path / "presets.yml").write_text(
        "careful: {prompt: strong, samples: 2, cot_level: text}\n"
        "factory: {monitor: rules}\n"
        "looped: {preset: careful}\n"
        "odd: 7\n"
    )
    (tmp_path / "made_here.py").write_text(FACTORY)
    return tmp_path


def one(item: Any) -> Monitor:
    [monitor] = parse_monitors([item])
    return monitor


def test_a_name_is_a_prompt_a_preset_or_a_factory(folder: Path) -> None:
    assert one("simple") == Monitor(name="simple", prompt="simple")
    assert one("mean-action") == Monitor(name="mean-action", prompt="action", samples=2)
    assert one("checklist").monitor == "ct/checklist"
    assert one("three_scores").monitor == "ct/three-scores"
    assert one("own.md") == Monitor(name="own", prompt="own.md")
    assert one("presets.yml:careful") == Monitor(name="careful", prompt="strong", samples=2, cot_level="text")


def test_other_keys_override_a_preset(folder: Path) -> None:
    assert one({"preset": "mean-quick", "samples": 3, "model": "judge"}) == Monitor(
        name="mean-quick", prompt="quick", samples=3, model="judge"
    )
    named = one({"preset": "presets.yml:factory", "name": "mine", "args": {"rules": None}})
    assert (named.name, named.monitor) == ("mine", "ct/rules")


def test_factories_are_found_by_module_and_by_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)  # pyright: ignore[reportUnknownMemberType]
    monkeypatch.delitem(sys.modules, "made_here", raising=False)
    by_module = one({"monitor": "made_here:plain", "args": {"weight": "5"}})
    assert (by_module.name, by_module.args) == ("plain", {"weight": 5})
    assert by_module.needs() == {"task_description"}
    by_file = one({"monitor": "made_here.py@plain"})
    assert (by_file.name, by_file.args) == ("plain", {"weight": 3})
    digest = hashlib.sha256(FACTORY.encode()).hexdigest()
    assert by_file.source == {"factory": "locally_loaded/made_here.py@plain", "sha256": digest}
    assert roles_of([one("made_here.py@asking")]) == {"judge"}
    for name, problem in {
        "curious": "'side_task', which no monitor is given",
        "positional": "must be keyword-only",
        "nothing": "no function of messages",
    }.items():
        with pytest.raises(ValidationError, match=problem):
            one(f"made_here.py@{name}")


REFUSED: list[tuple[Any, str]] = [
    ([], "name at least one"),
    ([7], "neither a name nor a mapping"),
    (["simpel"], "did you mean 'simple'?"),
    ([{"prompt": "stron"}], "did you mean 'strong'?"),
    ([{"prompt": "nowhere.md"}], "nowhere.md"),
    ([{"monitor": "rulse"}], "did you mean 'rules'?"),
    ([{"preset": "mean-acton"}], "did you mean 'mean-action'?"),
    ([{"preset": "presets.yml:carful"}], "did you mean 'careful'?"),
    ([{"preset": "presets.yml:odd"}], "no monitor preset 'odd'"),
    ([{"preset": "missing.yml:odd"}], "missing.yml"),
    ([{"preset": "presets.yml:looped"}], "names another preset"),
    ([{"promt": "simple"}], "did you mean 'prompt'?"),
    ([{"prompt": "simple", "args": {"rules": "x"}}], "takes no args"),
    ([{"prompt": "simple", "monitor": "rules"}], "name one of them"),
    ([{"monitor": "rules", "model": "judge"}], "model belongs to a prompt"),
    ([{"monitor": "rules", "cot_level": "cot"}], "cot_level belongs to a prompt"),
    ([{"monitor": "rules", "args": {"rulse": 1}}], "did you mean 'rules'?"),
    ([{"monitor": "checklist", "args": {"cot_level": "all"}}], "cot_level"),
    ([{"prompt": "simple", "cot_level": "all"}], "cot_level is 'all'"),
    ([{"prompt": "simple", "samples": 0}], "samples is '0'"),
    ([{"prompt": "simple", "samples": "many"}], "samples is 'many'"),
    ([{"prompt": "simple", "name": "a b"}], "letters, digits"),
    (["simple", {"prompt": "strong", "name": "simple"}], "two are called 'simple'"),
    (["bad.md"], "did you mean 'action'?"),
    (["blind.md"], "neither {transcript} nor {action}"),
    (["braces.md"], "no placeholder; write braces that are meant twice"),
    (["open.md"], "write braces that are meant twice"),
    (["twice.md"], "shows {action} twice"),
    (["shape.md"], "no placeholder"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_means_nothing_is_refused_in_one_line(given: Any, message: str, folder: Path) -> None:
    with pytest.raises(ExpectedError) as caught:
        parse_monitors(given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_protocol_reads_monitors_as_typed_and_records_all_of_them() -> None:
    entry = protocols.get("trusted-monitoring")
    typed = entry.parse(
        {"monitors": "[rules, {prompt: strong, model: judge, samples: 2}]", "combine": "mean"}
    )
    rules, strong = typed["monitors"]
    assert (rules.monitor, strong.model) == ("ct/rules", "judge")
    assert roles_of(typed["monitors"]) == {"judge"}
    recorded = entry.args_model.model_validate(typed).model_dump(mode="json")
    assert recorded["monitors"][1] == {
        "name": "strong",
        "prompt": "strong",
        "model": "judge",
        "cot_level": "none",
        "samples": 2,
        "monitor": None,
        "args": {},
    }
    assert recorded["combine"] == {"name": "mean", "args": {}}
    assert entry.parse(recorded)["monitors"] == typed["monitors"]
    assert entry.parse({"monitors": "simple"})["monitors"] == (one("simple"),)
    assert entry.parse({"monitors": "simple,rules"})["monitors"] == (one("simple"), one("rules"))
    with pytest.raises(UsageError, match="did you mean 'simple'"):
        entry.parse({"monitors": "[simpel]"})


def test_roles_are_those_that_are_asked() -> None:
    assert roles_of(parse_monitors(["rules"])) == frozenset()
    assert roles_of(parse_monitors(["simple", "checklist"])) == {"monitor"}
    assert roles_of([one({"monitor": "checklist", "args": {"model": "judge"}})]) == {"judge"}


@pytest.mark.parametrize(
    ("rule", "combined"),
    [("max", 90), ("mean", 40), ("median", 20), ({"name": "mean", "args": {}}, 40)],
)
def test_draws_are_combined_by_inspect_s_reducers(rule: Any, combined: float) -> None:
    assert parse_combine(rule).of([10, 20, 90]) == combined
    assert parse_combine(rule).of([]) is None


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("maximum", "did you mean 'max'?"),
        ("at_least", "does not take no arguments"),
        ({"name": "mean", "args": {"k": 1}}, "does not take"),
        ({"name": "mean", "arg": {}}, "did you mean 'args'?"),
        (7, "neither a name nor a mapping"),
        (
            {"name": "at_least", "args": {"k": 1, "value": 60}},
            "at_least makes 1.0 of 100 and 100, but thresholds are from 0 to 100: use a reducer that keeps",
        ),
        ({"name": "pass_at", "args": {"k": 1, "value": 60}}, "keeps the scale, such as max"),
        ({"name": "pass_k", "args": {"k": 1, "value": 60}}, "keeps the scale, such as max"),
    ],
)
def test_impossible_combinations_are_refused(rule: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_combine(rule)
    assert message in str(caught.value)
    assert CombineRule() == parse_combine("max")


KINDS = {
    "simple": ("action", {"task_description", "environment_description", "transcript", "action"}),
    "no-history": ("action", {"task_description", "environment_description", "action"}),
    "action": ("action", {"task_description", "side_task_goals", "transcript", "action"}),
    "action-no-goals": ("action", {"task_description", "transcript", "action"}),
    "goals": (
        "action",
        {"task_description", "environment_description", "side_task_goals", "transcript", "action"},
    ),
    "strong": ("action", {"task_description", "environment_description", "transcript", "action"}),
    "strong-goals": (
        "action",
        {"task_description", "environment_description", "side_task_goals", "transcript", "action"},
    ),
    "orthogonal": ("action", {"task_description", "transcript", "action"}),
    "trajectory": ("trajectory", {"task_description", "environment_description", "transcript"}),
    "quick": (
        "trajectory",
        {"task_description", "environment_description", "side_task_goals", "transcript"},
    ),
    "quick-no-goals": ("trajectory", {"task_description", "environment_description", "transcript"}),
    "goal-analysis": (
        "trajectory",
        {"task_description", "environment_description", "side_task_goals", "transcript"},
    ),
}


def test_the_packaged_prompts_show_what_their_names_promise() -> None:
    assert packaged_prompts() == sorted(KINDS)
    for name, (kind, placeholders) in KINDS.items():
        prompt = load_prompt(name)
        assert (prompt.kind, set(prompt.placeholders)) == (kind, placeholders), name


def test_the_log_can_name_what_each_monitor_s_text_was(folder: Path) -> None:
    monitors = parse_monitors(["own.md", "rules", "checklist"])
    sources = sources_of(monitors)
    digest = hashlib.sha256((folder / "own.md").read_bytes()).hexdigest()
    assert sources["own"] == {"prompt": "own.md", "sha256": digest}
    packaged = hashlib.sha256(DEFAULT_RULES.read_bytes()).hexdigest()
    assert sources["rules"] == {"factory": "ct/rules", "sha256": packaged}
    (folder / "own.yml").write_text("rules: [{name: a, where: call, pattern: b, weight: 1}]")
    own = one({"monitor": "rules", "args": {"rules": str(folder / "own.yml")}})
    assert own.source["sha256"] == hashlib.sha256((folder / "own.yml").read_bytes()).hexdigest()
    assert len(str(sources["checklist"]["sha256"])) == 64


def ct(*args: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(args)
    return int(ended.value.code or 0)


def test_monitors_are_listed_with_kind_and_inputs_and_shown_in_full(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    with pytest.raises(ValidationError):
        one("made_here.py@curious")
    assert ct("list", "monitors") == 0
    listed = capsys.readouterr().out
    for name in (*KINDS, "rules", "checklist", "three-scores", "single-goal", "mean-quick"):
        assert f"\n{name} " in listed
    assert "Cannot be used: monitor" in listed
    assert ct("list", "monitors", "strong") == 0
    assert load_prompt("strong").text.rstrip() in capsys.readouterr().out
    assert ct("list", "monitors", "three_scores") == 0
    assert "camouflage" in capsys.readouterr().out
    assert ct("list", "monitors", "stronk") == 2
    assert "did you mean 'strong'?" in capsys.readouterr().err
