"""The smoke test before a run: sandbox, scorers, models and prices, each checked before money is spent."""

from collections.abc import Iterator
from dataclasses import dataclass

import anyio

from control_tower.errors import ExpectedError
from control_tower.evals.plan import RunPlan
from control_tower.models.rate_sources import Prices
from control_tower.models.roles import make_models
from control_tower.sandbox.choose import sandbox_problems


@dataclass(frozen=True)
class Check:
    """One thing that was checked."""

    name: str
    detail: str
    problem: bool = False


def checks(plan: RunPlan) -> Iterator[Check]:
    """Check what a run needs, one thing at a time."""
    for env_id, choice in plan.sandboxes.items():
        problems = sandbox_problems(choice.type)
        yield Check(f"sandbox of {env_id}", "; ".join(problems) or choice.reason, bool(problems))
    for sample in plan.samples:
        unscored = [task.id for task in (*sample.tasks.mains, *sample.tasks.sides) if task.scorer is None]
        if unscored and plan.config.task_selection.main_tasks_with_no_scorers == "error":
            yield Check(f"scorers of {sample.id}", f"none for {', '.join(unscored)}", problem=True)
    yield Check("scorers", f"{len(plan.scoring.scorers())} for {len(plan.samples)} samples")
    for role, spec in plan.config.model_roles.items():
        problem = _ask(role, plan)
        yield Check(f"model of {role}", problem or f"{spec.full_name} answers", problem is not None)
    prices = Prices()
    for spec in plan.config.model_roles.values():
        priced = prices.find(spec.full_name)
        yield Check(f"price of {spec.full_name}", "known" if priced else "unpriced: its cost will be missing")


def _ask(role: str, plan: RunPlan) -> str | None:
    """Ask a role's model for one word; what went wrong, or None."""
    from inspect_ai.model import ChatMessageUser, GenerateConfig

    from control_tower.models.asking import ask

    async def ask_once() -> None:
        model = make_models({role: plan.config.model_roles[role]})[role]
        await ask(
            model,
            [ChatMessageUser(content="Answer with the word ready.")],
            config=GenerateConfig(max_retries=1),
        )

    try:
        anyio.run(ask_once)
    except ExpectedError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - a provider may raise anything; it is shown, not hidden
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return None
