"""The events of jobs, attempts and samples, with the fields that readers of the log rely on."""

from __future__ import annotations

from collections.abc import Sequence

from control_tower.fleet.documents import Ending, SampleResult
from control_tower.fleet.facts import Decided, Emit
from control_tower.fleet.messages import AttemptDone
from control_tower.fleet.outcomes import Category


def result_event(job: str, attempt: int, worker: str, result: SampleResult, *, correction: bool) -> Emit:
    """What a sample came to.

    Args:
        job: Its job.
        attempt: In which attempt.
        worker: Where.
        result: What is told.
        correction: Whether the result of another attempt was told before.
    """
    fields = {
        "job_id": job,
        "task": result.task,
        "model": result.model,
        "scores": result.scores,
        "error": result.error,
        "duration_s": result.duration_s,
        "instance_id": worker,
        "status": result.status,
        "sample": result.sample,
        "epoch": result.epoch,
        "attempt": attempt,
        "mode": result.mode,
        "usd": result.usd,
    }
    return Emit("correction" if correction else "result", fields)


def job_event(
    verdict: Decided,
    account: AttemptDone | Ending | None,
    attempts: int,
    spent: Sequence[float | None],
    *,
    correction: bool,
) -> Emit:
    """The verdict on a job.

    Args:
        verdict: What is told.
        account: What its worker said of the attempt, where that is known.
        attempts: How many there were.
        spent: What the tokens of those that ended cost, USD; None where something has no price.
        correction: Whether another verdict was told before.
    """
    fields = {
        "job_id": verdict.job,
        "status": verdict.status,
        "instance_id": verdict.worker,
        "duration_s": account.duration_s if account else None,
        "failure_category": verdict.category,
        "error_summary": account.error_summary if isinstance(account, Ending) else None,
        "attempt": verdict.attempt,
        "attempts": attempts,
        "usd": sum(one or 0.0 for one in spent) if spent and None not in spent else None,
    }
    return Emit("correction" if correction else "job_done", fields)


def attempt_event(
    job: str, attempt: int, category: Category, holder: str | None, ending: Ending | None
) -> Emit:
    """The end of an attempt that is not the verdict.

    Args:
        job: Its job.
        attempt: Its number.
        category: Why it ended.
        holder: The worker that held it, where that is known.
        ending: Its worker's account; None when it was lost.
    """
    fields = {
        "job_id": job,
        "attempt": attempt,
        "outcome": ending.outcome if ending else "lost",
        "failure_category": ending.category if ending else category,
        "error_summary": ending.error_summary if ending else None,
        "instance_id": ending.worker if ending else holder,
        "usd": ending.usd if ending else None,
    }
    return Emit("attempt_done", fields)
