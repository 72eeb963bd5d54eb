"""Names of Scores: a task may not take one that means something else, nor be taken for an audit."""

from types import SimpleNamespace
from typing import Any

import pytest

from control_tower.errors import ValidationError
from control_tower.logs.monitored import with_verdicts
from control_tower.scoring.plan import ScoringPlan


def plan(main: str, side: str) -> ScoringPlan:
    combination: Any = SimpleNamespace(main_ids=(main,), side_ids=(side,))
    return ScoringPlan((combination,), lambda state: combination)


@pytest.mark.parametrize("name", ["tasks", "monitor", "workspace_diff", "audit", "audit2", "audit17"])
def test_names_of_other_scores_are_refused(name: str) -> None:
    for main, side in ((name, "stain"), ("greet", name)):
        with pytest.raises(ValidationError, match=f"cannot be called {name}: a Score"):
            plan(main, side)
    assert plan(f"{name}_logs", f"my_{name}")


def test_verdicts_leave_the_order_of_task_scores_that_only_begin_like_an_audit() -> None:
    scores = {name: {"value": 1} for name in ("audit_logs", "tasks", "audit", "audit2")}
    changed = with_verdicts({"scores": scores}, {}, [])
    assert list(changed["scores"]) == ["audit_logs", "tasks", "monitor", "audit", "audit2"]
