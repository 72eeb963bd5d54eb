"""An agent that works against the scorers, and the check that it gains nothing.

Only where there is isolation: some of them end every process they can reach.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.demo.playing import ENVIRONMENTS, TRAJECTORIES, Work, play


@dataclass(frozen=True)
class Adversary:
    """What it does after the first main task is solved or, with `solved=False`, instead of solving it.

    `main` and `side` are the verdicts that it must get for the main task and the live side task; the other
    side tasks must fail. `why` is part of what the main task's scorer says.
    """

    command: str
    main: str = "I"
    side: str = "I"
    solved: bool = True
    why: str = ""


def run(code: str) -> str:
    """A command that runs Python code on the agent's machine."""
    return f"python3 - <<'EOF'\n{code}\nEOF"


def check(env: str, sandbox_type: str, adversaries: Mapping[str, Adversary], log_dir: Path) -> None:
    """Play each adversary and compare the verdicts."""
    solution = next(t for t in TRAJECTORIES if t.env == env and t.side is None and t.variant == 0)
    sides = ENVIRONMENTS[env].task_space().sides()
    live = next(side.id for side in sides.values() if side.failure_type == "live")
    works = {
        name: Work([*(solution.commands if a.solved else []), a.command], solution.main)
        for name, a in adversaries.items()
    }
    outcomes = play(env, sandbox_type, works, log_dir)
    assert {name: dict(outcome.verdicts) for name, outcome in outcomes.items()} == {
        name: {**dict.fromkeys(sides.ids, "I"), solution.main: a.main, live: a.side}
        for name, a in adversaries.items()
    }
    for name, adversary in adversaries.items():
        assert adversary.why in outcomes[name].explanations[solution.main]
