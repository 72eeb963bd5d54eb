"""The table at the end of a run, for a person."""

from collections.abc import Iterable, Iterator

from control_tower.config import redact
from control_tower.evals.oversight import Audits
from control_tower.evals.results import Results, Tally
from control_tower.logs.costs import total
from control_tower.models.cost import Cost


def result_lines(results: Results, unpriced: list[str]) -> Iterator[tuple[str, str]]:
    """Name and value of each line of the result table."""
    yield "status", results.status
    if results.usefulness.samples:
        yield "usefulness", _tally(results.usefulness)
    if results.side_success.samples:
        yield "side success", _tally(results.side_success)
    if results.side_success.samples and (results.usefulness.samples or results.decisions.get("audited")):
        yield from audit_lines(results.audits)
    if results.monitored_actions:
        unscored, asked = results.unscored_actions, results.monitored_actions
        yield "unscored actions", f"{unscored} of {asked} that monitors looked at"
    if decided := {name: count for name, count in results.decisions.items() if count}:
        yield "decisions", ", ".join(f"{name} {count}" for name, count in decided.items())
    yield "unscored", str(results.unscored)
    yield "errored", str(results.errored)
    if results.missing:
        yield "missing", f"{results.missing} of {results.expected} samples"
    if results.scorer_faults:
        faults = ", ".join(f"{reason} {count}" for reason, count in sorted(results.scorer_faults.items()))
        yield "scorer faults", f"{faults} (counted as failed; look at the scorers)"
    yield "refused", str(results.outcomes.get("refused", 0))
    yield (
        "outcomes",
        ", ".join(f"{name} {count}" for name, count in sorted(results.outcomes.items())) or "none",
    )
    if results.steps:
        yield (
            "steps",
            f"{sum(results.steps) / len(results.steps):.1f} on average, {max(results.steps)} at most",
        )
    yield from _costs(results)
    if unpriced:
        yield "unpriced", ", ".join(unpriced)
    for error in results.errors[:5]:
        yield "error", error
    yield "log", str(results.log)


def write_lines(lines: Iterable[tuple[str, str]]) -> str:
    """The lines as a table of two columns, without secrets."""
    listed = list(lines)
    width = max(len(name) for name, _ in listed)
    return redact("\n".join(f"{name:<{width}}  {value}" for name, value in listed))


def audit_lines(audits: Audits) -> Iterator[tuple[str, str]]:
    """What audits came to."""
    yield "safety", f"undefined: {audits.why_no_safety}" if audits.safety is None else f"{audits.safety:.3f}"
    caught, uncaught = f"{audits.caught:.4g} caught", f"{audits.uncaught:.4g} succeeded uncaught"
    yield "attacks", f"{caught}, {uncaught}, of {len(audits.scored)}"
    if audits.budget is not None:
        yield "audit budget", f"{audits.budget:.2%} ({audits.audited:.4g} of {audits.actions} honest actions)"


def _costs(results: Results) -> Iterator[tuple[str, str]]:
    costs = results.costs
    for role, models in sorted(costs.recorded.items()):
        parts = ", ".join(f"{model} {cost}" for model, cost in sorted(models.items()))
        yield f"cost of {role}", parts if len(models) == 1 else f"{sum(models.values(), Cost())} ({parts})"
    if costs.recorded:
        yield "cost", str(results.cost)
    if costs.cached:
        yield "cached", f"{costs.cached} answers came from the response cache and cost nothing"
    fresh = total(costs.fresh)
    if costs.cached or (results.cost.incomplete and not fresh.incomplete):
        yield "cost anew", f"{fresh} for asking everything again at today's prices"


def _tally(tally: Tally) -> str:
    count = f"{len(tally.numbers)} scored"
    if tally.unscored:
        count += f", {tally.unscored} unscored"
    if tally.errored:
        count += f", {tally.errored} errored"
    return f"{'—' if tally.mean is None else format(tally.mean, '.3f')} ({count})"
