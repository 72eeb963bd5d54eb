"""What lists are asked for: a small language of terms, and the same as plain parameters.

Terms stand side by side and all hold. `field:value` is equality, `field~value` looks within, `<`, `<=`, `>`
and `>=` compare; `field:*` and `field:none` ask whether there is a value. A word alone, or several in quotes,
is looked for in names and labels. A `-` in front turns a term round.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from control_tower.agent_runs.errors import BadRequest
from control_tower.agent_runs.filter_fields import (
    RUN_FIELDS,
    RUN_TEXT,
    TRAJECTORY_FIELDS,
    TRAJECTORY_TEXT,
    Asked,
    Field,
    Sign,
)
from control_tower.agent_runs.store.interface import Sort
from control_tower.agent_runs.store.where import EVERY, All, Any, Contains, Not, Where
from control_tower.errors import did_you_mean

LONGEST = 2000
"""Characters of a filter."""

MOST_TERMS = 50
LONGEST_VALUE = 500


@dataclass(frozen=True)
class Term:
    """One condition."""

    field: str | None
    """None: the value is looked for in names and labels."""
    value: str
    sign: Sign = ":"
    key: str | None = None
    """Of a field of named numbers."""
    special: Literal["*", "none"] | None = None
    """Whether there is a value at all; then `value` is empty."""
    negated: bool = False

    def __str__(self) -> str:
        """As it is written."""
        minus = "-" if self.negated else ""
        if self.field is None:
            return minus + _quoted(self.value)
        key = "" if self.key is None else f"({_quoted(self.key)})"
        plain = self.value if _PLAIN.fullmatch(self.value) and self.value != "none" else _quoted(self.value)
        return f"{minus}{self.field}{key}{self.sign}{self.special or plain}"


@dataclass(frozen=True)
class Language:
    """What can be asked of rows of one kind."""

    fields: Mapping[str, Field]
    text: tuple[str, ...]
    """Columns in which a word alone is looked for."""
    parameters: Mapping[str, Callable[[str], Term]]
    """Plain parameters as terms."""
    every: frozenset[str]
    """Parameters whose values must all hold; of others one suffices."""


def parse(text: str) -> list[Term]:
    """The terms of a filter.

    Raises:
        BadRequest: It is too long, or a part of it is no term.
    """
    if len(text) > LONGEST:
        raise BadRequest(f"the filter has {len(text)} characters; at most {LONGEST} are read")
    terms: list[Term] = []
    position = len(text) - len(text.lstrip())
    while position < len(text):
        found = _TERM.match(text, position)
        if found is None:
            raise BadRequest(f"the filter cannot be read at {text[position : position + 40]!r}: {_HINT}")
        terms.append(_term(found))
        position = found.end()
    if len(terms) > MOST_TERMS:
        raise BadRequest(f"the filter has {len(terms)} terms; at most {MOST_TERMS} are read")
    return terms


def condition(language: Language, q: str, parameters: Mapping[str, Sequence[str]], *, me: str) -> Where:
    """What a filter and plain parameters ask for.

    Args:
        language: Of which rows.
        q: In the language.
        parameters: By name, each with all its values.
        me: Who `uploader:me` is.

    Raises:
        BadRequest: There is no such field or parameter, or it cannot be so compared.
    """
    parts = [_where(language, term, me) for term in parse(q)]
    if sum(len(values) for values in parameters.values()) > MOST_TERMS:
        raise BadRequest(f"there are more than {MOST_TERMS} parameters")
    for name, values in parameters.items():
        as_term = language.parameters.get(name)
        if as_term is None:
            raise BadRequest(f"there is no parameter {name!r}{did_you_mean(name, language.parameters)}")
        if not values:
            continue
        asked = tuple(_where(language, as_term(value), me) for value in values)
        parts.append(All(asked) if name in language.every else Any(asked))
    return All(tuple(parts)) if parts else EVERY


def sorting(text: str) -> Sort:
    """The order of a list of runs.

    Args:
        text: `created`, `name`, `cost`, `trajectories` or `metric(<name>)`, behind a `-` the highest first.

    Raises:
        BadRequest: It is none of these.
    """
    name = text.removeprefix("-")
    metric = re.fullmatch(r"metric\((?P<key>.{1,300})\)", name, re.DOTALL)
    column, key = ("metrics", metric["key"]) if metric else (name, None)
    if metric is None and name not in SORTED_BY:
        raise BadRequest(f"sort: there is no {name!r}{did_you_mean(name, SORTED_BY)}")
    return Sort(column, text.startswith("-"), key)


def _term(found: re.Match[str]) -> Term:
    negated = bool(found["minus"])
    if (text := found["text"]) is not None:
        return Term(None, _short(_unquoted(text)), negated=negated)
    name, value = found["field"].lower(), found["value"]
    sign = ":" if found["sign"] == "=" else found["sign"]
    key = None if found["key"] is None else _short(_unquoted(found["key"].strip()))
    if value in ("*", "none") and sign == ":":
        return Term(name, "", ":", key, "*" if value == "*" else "none", negated)
    assert sign in get_args(Sign)
    return Term(name, _short(_unquoted(value)), sign, key, None, negated)  # pyright: ignore[reportArgumentType]


def _where(language: Language, term: Term, me: str) -> Where:
    if term.field is None:
        found: Where = Any(tuple(Contains(column, term.value) for column in language.text))
    else:
        known = language.fields.get(term.field)
        if known is None:
            raise BadRequest(f"there is no field {term.field!r}{did_you_mean(term.field, language.fields)}")
        value = me if term.field == "uploader" and term.value == "me" else term.value
        found = known(Asked(term.field, term.sign, value, term.key, term.special))
    return Not(found) if term.negated else found


def _short(value: str) -> str:
    if not value:
        raise BadRequest("the filter has an empty value; `none` asks for rows without one")
    if len(value) > LONGEST_VALUE:
        raise BadRequest(
            f"a value of the filter has {len(value)} characters; at most {LONGEST_VALUE} are read"
        )
    return value


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL) if text.startswith('"') else text


def _is(name: str) -> Callable[[str], Term]:
    return lambda value: Term(name, _short(value))


def _metric(value: str) -> Term:
    found = re.fullmatch(r"(?P<key>.+?)(?P<sign><=|>=|[<>=:])(?P<value>[^<>=:]+)", value, re.DOTALL)
    if found is None:
        raise BadRequest(f"metric: write <name>>=<number>, not {value[:100]!r}")
    sign = ":" if found["sign"] == "=" else found["sign"]
    return Term("metric", _short(found["value"]), sign, _short(found["key"]))  # pyright: ignore[reportArgumentType]


_HINT = "write field:value, field<number or words; put values with spaces in double quotes"
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_TERM = re.compile(
    rf"""(?P<minus>-?)
    (?:(?P<field>[A-Za-z_]+)(?:\((?P<key>{_QUOTED}|[^()"]+)\))?(?P<sign><=|>=|[:=~<>])(?P<value>{_QUOTED}|[^\s"]+)
    |(?P<text>{_QUOTED}|[^\s"()\-:=~<>][^\s"():=~<>]*))
    (?:\s+|$)""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_./+:@-]*")

SORTED_BY = ("created", "name", "cost", "trajectories", "metric(<name>)")

RUN_PARAMETERS = {
    "policy": "Name of a policy.",
    "env": "Environment, with its setting or without.",
    "main_task": "Id of a main task.",
    "side_task": "Id of a side task.",
    "tag": "A tag; of several all.",
    "not_tag": "A tag that it has not.",
    "uploader": "Whose it is; `me` is whoever asks.",
    "since": "Made on this day or at this moment, or later; UTC.",
    "until": "Made on this day or at this moment, or earlier; UTC.",
    "model": "Full name of a model.",
    "protocol": "Name of the protocol.",
    "task_set": "Name of the task set.",
    "producer": "`eval` or `control_eval`.",
    "eval_version": "Version of the log's format.",
    "status": "Of the log: `success`, `error` or `cancelled`.",
    "has": "A field that has a value.",
    "metric": "`<scorer>/<metric>` compared with a number, as `audit/safety>=0.8`.",
}
"""Plain parameters of lists of runs, and what they mean."""

TRAJECTORY_PARAMETERS = {
    "environment": "Environment, with its setting or without.",
    "main_task": "Id of a main task.",
    "side_task": "Id of a side task.",
    "run_id": "The run it belongs to.",
    "tag": "A tag of the trajectory.",
    "dataset": "A dataset it belongs to.",
    "main_task_outcome": "`pass`, `fail` or `unscored`.",
    "side_task_outcome": "`pass`, `fail` or `unscored`.",
    "stream": "`honest` or `attack`.",
}
"""Plain parameters of lists of trajectories, and what they mean."""

RUNS_LANGUAGE = Language(
    RUN_FIELDS,
    RUN_TEXT,
    {
        **{name: _is(name) for name in RUN_PARAMETERS},
        "main_task": _is("main"),
        "side_task": _is("side"),
        "not_tag": lambda value: Term("tag", _short(value), negated=True),
        "since": lambda value: Term("created", _short(value), ">="),
        "until": lambda value: Term("created", _short(value), "<="),
        "has": lambda value: Term(_short(value), "", special="*"),
        "metric": _metric,
    },
    frozenset({"tag", "not_tag", "since", "until", "has", "metric"}),
)
TRAJECTORIES_LANGUAGE = Language(
    TRAJECTORY_FIELDS,
    TRAJECTORY_TEXT,
    {
        "environment": _is("env"),
        "main_task": _is("main"),
        "side_task": _is("side"),
        "run_id": _is("run"),
        "tag": _is("tag"),
        "dataset": _is("dataset"),
        "main_task_outcome": _is("main_outcome"),
        "side_task_outcome": _is("side_outcome"),
        "stream": _is("stream"),
    },
    frozenset(),
)
