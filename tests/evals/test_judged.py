"""What monitors are given of logs that other programs wrote."""

import json
from pathlib import Path
from typing import Any

import pytest

from control_tower.errors import ValidationError
from control_tower.evals.judged import judged_of
from tests.logs.log_making import call, seat, tool

LOG = Path("foreign.eval")
HOLOGRAM: Any = [{"type": "hologram"}]
LONE = "half \ud83d of one"
KITCHEN = {"id": "kitchen", "display_name": "Kitchen", "description": LONE}
BREW: dict[str, Any] = {"id": "brew", "environment": "kitchen", "name": "Brew", "description": "Make tea."}


def sample(*events: Any, main: Any = BREW) -> dict[str, Any]:
    return {
        "id": "s1",
        "epoch": 2,
        "events": list(events),
        "metadata": {"environment": KITCHEN, "main_tasks": [main]},
    }


@pytest.mark.parametrize(
    ("foreign", "found"),
    [
        (sample(seat(call("a"), text=HOLOGRAM)), "type is 'hologram'"),
        (
            sample(seat(call("a")), tool("a", error={"type": "gremlin", "message": "no"})),
            "error.type is 'gremlin'",
        ),
        (
            sample(seat(call("a")), main={**BREW, "task_category": "tea"}),
            "main_tasks.0.task_category is 'tea'",
        ),
    ],
    ids=["content", "error", "category"],
)
def test_what_cannot_be_read_is_refused_by_log_and_sample(foreign: Any, found: str) -> None:
    with pytest.raises(ValidationError) as caught:
        judged_of(LOG, foreign, "action")
    assert str(caught.value).startswith("foreign.eval: sample s1 epoch 2 cannot be judged: ")
    assert found in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["action", "trajectory"])
def test_halves_of_characters_are_escaped_wherever_they_stand(kind: Any) -> None:
    events = [seat(call("a", cmd=LONE), text=LONE), tool("a", result=LONE), seat(call("b"))]
    judged, inputs = judged_of(LOG, sample(*events), kind)
    words, result = judged[-1].messages[:2]
    shown = [words.text, result.text, inputs.environment_description, json.dumps(words.model_dump())]
    assert shown[:3] == ["half \\ud83d of one"] * 3
    assert '"cmd": "half \\\\ud83d of one"' in shown[3]
    assert len(judged) == {"action": 2, "trajectory": 1}[kind]
