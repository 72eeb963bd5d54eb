"""One form for scorers: whatever an author gives becomes an Inspect scorer with a name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any, cast

from inspect_ai.scorer import Score, Scorer, Target, mean, scorer
from inspect_ai.solver import TaskState
from inspect_ai.util import registry_info

ScoreFunction = Callable[[TaskState, Target], Awaitable[Score | None]]


def as_scorer(candidate: Any, owner: str) -> Scorer:
    """An Inspect scorer made of an async function, a scorer, or a function that makes a scorer.

    Raises:
        ValueError: none of these.
    """
    if _is_async(candidate):
        return candidate if is_registered_scorer(candidate) else register_scorer(candidate)
    if callable(candidate):
        made: object = candidate()
        if _is_async(made):
            if is_registered_scorer(made):
                return cast(Scorer, made)
            return register_scorer(cast(ScoreFunction, made), _name_of(candidate))
    raise ValueError(f"{owner}: the scorer must be an async function (state, target) or an Inspect scorer")


def register_scorer(function: ScoreFunction, name: str | None = None) -> Scorer:
    """Give an async function the marks of an Inspect scorer; it keeps its name."""

    @functools.wraps(function)
    async def score(state: TaskState, target: Target) -> Score | None:
        return await function(state, target)

    def factory() -> Scorer:
        return score

    score.is_scorer = True  # pyright: ignore[reportFunctionMemberAccess, reportAttributeAccessIssue]
    factory.__module__ = getattr(function, "__module__", factory.__module__)
    return scorer(metrics=[mean()], name=name or _name_of(function))(factory)()


def is_registered_scorer(candidate: object) -> bool:
    """Whether Inspect knows it as a scorer or as a function that makes one."""
    try:
        return registry_info(candidate).type == "scorer"
    except ValueError:
        return False


def find_scorer(module: ModuleType) -> Scorer:
    """The scorer of a `scorer.py`: its `scorer`, else the one scorer that is defined in it.

    Raises:
        ValueError: none, or several to choose from.
    """
    named = vars(module).get("scorer")
    if named is not None and (_is_async(named) or _is_defined_scorer(named, module)):
        return as_scorer(named, module.__name__)
    defined = {name: value for name, value in vars(module).items() if _is_defined_scorer(value, module)}
    if len(defined) == 1:
        return as_scorer(next(iter(defined.values())), module.__name__)
    where = module.__file__ or module.__name__
    if not defined:
        raise ValueError(f"{where}: no scorer; define an async function `scorer(state, target)`")
    raise ValueError(f"{where}: several scorers ({', '.join(sorted(defined))}); name one of them `scorer`")


def _is_defined_scorer(value: object, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__ and is_registered_scorer(value)


def _is_async(value: object) -> bool:
    if isinstance(value, type):
        return False
    return inspect.iscoroutinefunction(value) or (
        callable(value) and inspect.iscoroutinefunction(type(value).__call__)
    )


def _name_of(value: object) -> str:
    return getattr(value, "__name__", type(value).__name__)
