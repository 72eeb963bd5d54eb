"""`--model-role`: names, aliases and JSON, and what is refused."""

import pytest

from control_tower.errors import StateError, UsageError
from control_tower.models.roles import make_models, parse_roles


def test_a_role_is_bound_to_a_name_an_alias_or_a_specification() -> None:
    roles = parse_roles(
        [
            "untrusted=anthropic/claude-haiku-4-5",
            "trusted=Haiku",
            'monitor={"model_name": "openai/gpt-5-nano", "config": {"max_tokens": 9, "seed": 1}}',
            'judge={"model_name": "claude-haiku-4-5", "provider": "anthropic"}',
        ]
    )
    assert [spec.full_name for spec in roles.values()] == [
        "anthropic/claude-haiku-4-5",
        "anthropic/claude-haiku-4-5",
        "openai/gpt-5-nano",
        "anthropic/claude-haiku-4-5",
    ]
    assert roles["monitor"].config == {"max_tokens": 9, "seed": 1}


@pytest.mark.parametrize(
    ("items", "said"),
    [
        (["untrusted"], "ROLE=MODEL"),
        (["=x/y"], "ROLE=MODEL"),
        (["untrusted="], "ROLE=MODEL"),
        (["a=x/y", "a=x/z"], "twice"),
        (["untrsted=haiku"], "did you mean 'untrusted'"),
        (["a=haikoo"], "did you mean 'haiku'"),
        (['a={"model_name": "x/y", "confg": {}}'], "no such key: confg; did you mean 'config'"),
        (['a={"model_name": "x/y", "openrouter": {}}'], "x/y is asked directly"),
        (['a={"model_name": "x/y", "config": {"cache": true}}'], "the same answer"),
        (['a={"config": {}}'], "Field required"),
        (["a={"], "a:"),
        (['a={"model_name": "x/y", "config": {"temprature": 1}}'], "did you mean 'temperature'"),
        (
            ['a={"model_name": "x/y", "config": {"extra_headers": {"Authorization": "s"}}}'],
            "would stand in the log",
        ),
    ],
)
def test_bad_specifications_are_refused_in_one_line(items: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        parse_roles(items)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", ["", "  "])
def test_an_empty_key_counts_as_none(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    with pytest.raises(StateError, match="set ANTHROPIC_API_KEY"):
        make_models(parse_roles(["untrusted=haiku"]))


def test_an_unknown_provider_is_named() -> None:
    with pytest.raises(StateError, match="nosuch/x"):
        make_models(parse_roles(["untrusted=nosuch/x"]))
