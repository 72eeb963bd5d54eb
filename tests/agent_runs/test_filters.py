"""The filter language: what is written is what is read, and what cannot be meant is refused."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_tower.agent_runs.errors import BadRequest
from control_tower.agent_runs.filters import (
    RUN_PARAMETERS,
    RUNS_LANGUAGE,
    TRAJECTORIES_LANGUAGE,
    TRAJECTORY_PARAMETERS,
    Term,
    condition,
    parse,
    sorting,
)
from control_tower.agent_runs.store.interface import Sort
from control_tower.agent_runs.store.where import All, Any, Compare, Contains, Equals, Has, Not, Where

VALUES = st.text(min_size=1, max_size=20)
NAMES = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
SIGNS = st.sampled_from([":", "~", "<", "<=", ">", ">="])
TERMS = st.one_of(
    st.builds(Term, st.none(), VALUES, negated=st.booleans()),
    st.builds(Term, NAMES, VALUES, SIGNS, st.none() | VALUES, negated=st.booleans()),
    st.builds(
        Term,
        NAMES,
        st.just(""),
        st.just(":"),
        st.none() | VALUES,
        st.sampled_from(["*", "none"]),
        st.booleans(),
    ),
)


@given(st.lists(TERMS, max_size=8))
def test_terms_are_read_as_they_are_written(terms: list[Term]) -> None:
    assert parse(" ".join(map(str, terms))) == terms


@given(st.text(max_size=60) | st.text(':~<>=()"\\-* abcost\n', max_size=40))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    for language in (RUNS_LANGUAGE, TRAJECTORIES_LANGUAGE):
        try:
            assert isinstance(condition(language, text, {}, me="ann"), All)
        except BadRequest as error:
            assert str(error)


@given(st.sampled_from([*RUN_PARAMETERS, *TRAJECTORY_PARAMETERS]), st.lists(st.text(max_size=30), max_size=3))
def test_any_parameter_is_taken_or_refused(name: str, values: list[str]) -> None:
    language = RUNS_LANGUAGE if name in RUN_PARAMETERS else TRAJECTORIES_LANGUAGE
    try:
        condition(language, "", {name: values}, me="ann")
    except BadRequest as error:
        assert str(error)


def runs(q: str = "", **parameters: Sequence[str]) -> Where:
    """What a filter of runs asks for, when it is one condition."""
    found = condition(RUNS_LANGUAGE, q, parameters, me="ann")
    assert isinstance(found, All)
    return found.parts[0] if len(found.parts) == 1 else found


@pytest.mark.parametrize(
    ("q", "meant"),
    [
        ("", All()),
        ("  \n ", All()),
        ("name:x", Equals("name", "x")),
        ("NAME=x", Equals("name", "x")),
        ('name:"two words"', Equals("name", "two words")),
        (r'name:"a \"b\" \\"', Equals("name", r'a "b" \\'[:-1])),
        ('name:"none"', Equals("name", "none")),
        ("name:none", Not(Not(Equals("name", None)))),
        ("name:*", Not(Equals("name", None))),
        ("-name:x", Not(Equals("name", "x"))),
        ("name~ab", Contains("name", "ab")),
        ("policy:attack", Any((Equals("policy", "attack"), Has("policies", "attack")))),
        ("protocol:defer", Any((Equals("protocol", "defer"), Equals("protocol", "ct/defer")))),
        ("protocol:ct/defer", Equals("protocol", "ct/defer")),
        ("uploader:me", Equals("creator", "ann")),
        ("uploader:bob", Equals("creator", "bob")),
        ("tag:a-b", Has("tags", "a-b")),
        ("side:*", Contains("side_tasks", "")),
        ("side:none", Not(Contains("side_tasks", ""))),
        ("env:web", Has("environments_short", "web")),
        ("env:shop/web", Has("environments", "shop/web")),
        (
            "main:a+b",
            Any((All((Has("main_tasks", "a"), Has("main_tasks", "b"))), All((Has("main_tasks", "a+b"),)))),
        ),
        ("cost<10", Compare("cost", "<", 10.0)),
        ("cost:1.5", All((Compare("cost", ">=", 1.5), Compare("cost", "<=", 1.5)))),
        ("cost:none", Not(Any((Compare("cost", "<", 0.0), Compare("cost", ">=", 0.0))))),
        ("metric(audit/safety)>=0.8", Compare("metrics", ">=", 0.8, "audit/safety")),
        ('metric("a (b)")<-1e3', Compare("metrics", "<", -1000.0, "a (b)")),
        ("created>=2026-11-01", Compare("created", ">=", "2026-11-01T00:00:00.000000Z")),
        ("created>2026-11-01", Compare("created", ">=", "2026-11-02T00:00:00.000000Z")),
        ("created<2026-11-01", Compare("created", "<", "2026-11-01T00:00:00.000000Z")),
        ("created<=2026-11-01", Compare("created", "<", "2026-11-02T00:00:00.000000Z")),
        ("created<=2026-11-01T12:00:00+02:00", Compare("created", "<", "2026-11-01T10:00:00.000001Z")),
    ],
)
def test_what_terms_mean(q: str, meant: Where) -> None:
    assert runs(q) == meant


def test_words_are_looked_for_in_names_and_labels() -> None:
    meant = Any(tuple(Contains(column, "my run") for column in ("name", "policy", "task_set", "tags")))
    assert runs('"my run"') == meant
    assert runs('-"my run"') == Not(meant)
    assert len(parse("two words")) == 2


@pytest.mark.parametrize(
    ("parameters", "meant"),
    [
        ({"tag": ["a", "b"]}, All((Has("tags", "a"), Has("tags", "b")))),
        ({"not_tag": ["a"]}, All((Not(Has("tags", "a")),))),
        ({"model": ["x", "y"]}, Any((Has("models", "x"), Has("models", "y")))),
        ({"since": ["2026-01-01"]}, All((Compare("created", ">=", "2026-01-01T00:00:00.000000Z"),))),
        ({"until": ["2026-01-01"]}, All((Compare("created", "<", "2026-01-02T00:00:00.000000Z"),))),
        ({"has": ["side"]}, All((Contains("side_tasks", ""),))),
        ({"metric": ["audit/safety>=0.8"]}, All((Compare("metrics", ">=", 0.8, "audit/safety"),))),
        ({"tag": ['-"*none']}, All((Has("tags", '-"*none'),))),
        ({"tag": []}, All()),
    ],
)
def test_what_parameters_mean(parameters: Mapping[str, Sequence[str]], meant: Where) -> None:
    assert runs("", **parameters) == meant


@pytest.mark.parametrize(
    ("q", "said"),
    [
        ("polciy:x", "there is no field 'polciy'; did you mean 'policy'?"),
        ("policy:", "cannot be read at 'policy:'"),
        ('policy:""', "an empty value"),
        ('"open', "cannot be read at"),
        ("a:b:c d", "there is no field 'a'"),
        ("cost:cheap", "cost: 'cheap' is no number"),
        ("cost<inf", "cost: 'inf' is no number"),
        ("cost~1", "cost: cannot be compared by '~'"),
        ("name<a", "name: cannot be compared by '<', only by : ~"),
        ("name(x):a", "name: takes no name in brackets"),
        ("metric>1", "metric: write metric(<name>)"),
        ("created>=yesterday", "created: 'yesterday' is no day or moment"),
        ("created>9999-12-31", "created: '9999-12-31' is no day or moment"),
        ("x" * 2001, "the filter has 2001 characters; at most 2000"),
        ("x " * 51, "the filter has 51 terms; at most 50"),
        ("x" * 501, "a value of the filter has 501 characters; at most 500"),
    ],
)
def test_what_cannot_be_meant(q: str, said: str) -> None:
    with pytest.raises(BadRequest) as refused:
        runs(q)
    assert said in str(refused.value)


def test_parameters_that_are_not_there() -> None:
    with pytest.raises(BadRequest, match="there is no parameter 'tags'; did you mean 'tag'"):
        runs("", tags=["a"])
    with pytest.raises(BadRequest, match="more than 50 parameters"):
        runs("", tag=["a"] * 51)
    with pytest.raises(BadRequest, match="there is no 'passed'; did you mean 'pass'"):
        condition(TRAJECTORIES_LANGUAGE, "", {"main_task_outcome": ["passed"]}, me="ann")


def test_orders() -> None:
    assert sorting("-created") == Sort("created", descending=True)
    assert sorting("name") == Sort("name")
    assert sorting("-metric(a (b))") == Sort("metrics", True, "a (b)")
    with pytest.raises(BadRequest, match="sort: there is no 'costs'; did you mean 'cost'"):
        sorting("costs")
