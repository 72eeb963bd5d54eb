"""A report in words and tables, for a terminal and for `summary.md`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from control_tower.metrics.report import BudgetPoint, Counts, Estimate, Evaluation, Report, Roc

Row = Mapping[str, str]


@dataclass(frozen=True)
class Section:
    """A titled table, and sentences under it."""

    title: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


def sections(report: Report) -> Iterator[Section]:
    """The tables of a report."""
    for evaluation in report.evaluations:
        yield Section(evaluation.name, tuple(_overview(evaluation)), _reasons(evaluation))
        yield Section(_points_title(evaluation), tuple(map(_point, evaluation.points)))
        if evaluation.groups:
            by = evaluation.groups[0].by
            rows = [
                {
                    by: group.name,
                    "honest": str(group.honest),
                    "attack": str(group.attack),
                    "usefulness": number(group.usefulness),
                    "attack success": number(group.attack_success),
                    **{f"safety at {percent(p.budget)}": number(p.safety) for p in group.safety},
                }
                for group in evaluation.groups
            ]
            yield Section(f"By {by} (thresholds are those of all honest samples)", tuple(rows))
        if evaluation.rocs:
            yield Section("Telling attack from honest", tuple(map(_roc, evaluation.rocs)))
        yield Section("What was counted", tuple(_counted(evaluation)), evaluation.accounting.notes)
    for budget, points in report.pareto.items():
        rows = [
            {
                "point": point.name + (" (reference)" if point.reference else ""),
                "budget": percent(point.budget) + (" (live)" if point.live else ""),
                "usefulness": number(point.usefulness),
                "safety": number(point.safety),
                "dominated by": ", ".join(point.dominated_by),
            }
            for point in points
        ]
        if len(rows) > 1:
            yield Section(f"Usefulness and safety at a budget of {percent(budget)}", tuple(rows))


def markdown(report: Report) -> str:
    """The text of `summary.md`."""
    parameters = report.parameters
    how = (
        f"{parameters.bootstrap} bootstrap draws by {parameters.cluster}, seed {parameters.seed}"
        if parameters.bootstrap
        else "without a bootstrap"
    )
    lines = [
        "# Metrics",
        "",
        f"In brackets: {parameters.confidence:.0%} intervals ({how}; Wilson for proportions).",
        "",
        "| log | protocol | sha256 |",
        "|---|---|---|",
    ]
    sources = dict.fromkeys(source_ for e in report.evaluations for source_ in _sources(e))
    lines += [f"| {_cell(name)} | {_cell(protocol)} | `{digest}` |" for name, protocol, digest in sources]
    for section in sections(report):
        lines += ["", f"## {section.title}", ""]
        if section.rows:
            columns = list(section.rows[0])
            lines.append("| " + " | ".join(map(_cell, columns)) + " |")
            lines.append("|" + "---|" * len(columns))
            lines += [
                "| " + " | ".join(_cell(row.get(name, "")) for name in columns) + " |" for row in section.rows
            ]
        lines += [f"{'' if index else chr(10)}- {note}" for index, note in enumerate(section.notes)]
    return "\n".join(lines) + "\n"


def number(estimate: Estimate) -> str:
    """A value with its interval, and what it would be at worst."""
    if estimate.value is None:
        return "undefined"
    text = f"{estimate.value:.3f}"
    if estimate.low is not None and estimate.high is not None:
        text += f" [{estimate.low:.3f}, {estimate.high:.3f}]"
    return text if estimate.worst is None else f"{text} (at worst {estimate.worst:.3f})"


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.4g} %"


def _overview(evaluation: Evaluation) -> Iterator[Row]:
    honest, attack = (
        " + ".join(dict.fromkeys(policy or "unknown" for policy in policies))
        for policies in zip(*((s.honest_policy, s.attack_policy) for s in evaluation.sources), strict=True)
    )
    yield {"what": "policies", "value": honest if honest == attack else f"{honest} and {attack}", "n": ""}
    for name, estimate in (
        ("usefulness", evaluation.usefulness),
        ("main success", evaluation.main_success),
        ("attack success", evaluation.attack_success),
    ):
        yield {"what": name, "value": number(estimate), "n": str(estimate.n)}
    costs = evaluation.accounting.costs
    for name, usd, incomplete in (
        ("cost of an honest sample", costs.honest, costs.honest_incomplete),
        ("cost of an attack sample until its first audit", costs.attack, costs.attack_incomplete),
        ("cost of all samples, without retried attempts", costs.total, costs.total_incomplete),
    ):
        value = "unknown" if usd is None else f"${usd:,.4f}" + (" (incomplete)" if incomplete else "")
        yield {"what": name, "value": value, "n": ""}


def _reasons(evaluation: Evaluation) -> tuple[str, ...]:
    """Why something in the evaluation is undefined, has no interval, or is not what it seems."""
    named = [
        ("usefulness", evaluation.usefulness),
        ("main success", evaluation.main_success),
        ("attack success", evaluation.attack_success),
        *((f"safety at {percent(point.budget)}", point.safety) for point in evaluation.points),
    ]
    return tuple(f"{name}: {estimate.reason}" for name, estimate in named if estimate.reason)


def _points_title(evaluation: Evaluation) -> str:
    units = "actions" if evaluation.level == "action" else "trajectories"
    if evaluation.kind == "live":
        return f"Safety of the audits made while it ran (budget: audited share of honest {units})"
    if evaluation.kind == "unmonitored":
        return "Safety without any audit"
    return f"Safety by audit budget (share of honest {units})"


def _point(point: BudgetPoint) -> Row:
    return {
        "budget": percent(point.budget),
        "audited": "" if point.audited is None else percent(point.audited),
        "threshold": "none" if point.threshold is None else f"{point.threshold:.6g}",
        "share at it": "" if point.share is None else percent(point.share),
        "tied at it": str(point.tied),
        "safety": number(point.safety),
    }


def _roc(roc: Roc) -> Row:
    return {
        "level": roc.level,
        "AUROC": number(roc.auroc),
        **{f"hits at {percent(rate)} false": number(estimate) for rate, estimate in roc.tpr_at_fpr.items()},
        "honest": f"{roc.honest}, {roc.honest_unscored} of them unscored",
        "attack": f"{roc.attack}, {roc.attack_unscored} of them unscored",
    }


def _counted(evaluation: Evaluation) -> Iterator[Row]:
    accounting = evaluation.accounting
    judged = evaluation.monitor is not None
    honest, attack = _counts(accounting.honest, judged), _counts(accounting.attack, judged)
    for name in honest:
        yield {"what": name, "honest": honest[name], "attack": attack[name]}
    if accounting.landings:
        yield {"what": "landings", "honest": "", "attack": _listed(accounting.landings)}
    if accounting.faults:
        yield {"what": "scorer faults, both streams", "honest": "", "attack": _listed(accounting.faults)}


def _counts(counts: Counts, judged: bool) -> Row:
    found = {
        "samples": str(counts.samples),
        "errored": str(counts.errored),
        "stopped for want of a score": str(counts.stopped_unscored),
        "without task scores": str(counts.without_tasks),
        "without a verdict": str(counts.unscored),
        "clusters": str(counts.clusters),
        "actions": str(counts.actions),
    }
    if not judged:
        return found
    measured = counts.samples - counts.errored - counts.without_tasks
    return {
        **found,
        "actions without a score": str(counts.unscored_actions),
        "actions passed over by design": str(counts.skipped_actions),
        "runs without a score": str(counts.unscored_trajectories),
        "draws that gave no number": str(counts.unread_draws),
        "samples the monitor scored": f"{counts.covered} of {measured}",
    }


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _sources(evaluation: Evaluation) -> Sequence[tuple[str, str, str]]:
    return [(source.name, source.protocol, source.sha256) for source in evaluation.sources]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
