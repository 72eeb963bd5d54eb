"""What the decision core would do next, in words: the action, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from control_tower.fleet.documents import Ending
from control_tower.fleet.facts import (
    Action,
    Emit,
    End,
    Exit,
    Give,
    Look,
    ReadEnding,
    ReadSamples,
    Replace,
    SetControl,
    Start,
    WriteFailed,
    WriteReopening,
    WriteSeal,
)
from control_tower.fleet.jobs import Job
from control_tower.fleet.reconcile import State
from control_tower.fleet.status import Seen

_NAMED = 3
"""Jobs of a step that are named; of more the first is, and how many there are."""

_MODES = {
    "run": "take jobs",
    "pause": "begin nothing new",
    "drain": "finish and leave",
    "stop": "end and leave",
}
_OFTEN = ("fleet_start", "fleet_summary", "launch")
"""Events that every new controller writes."""


@dataclass(frozen=True)
class Step:
    """Something that would be done."""

    text: str
    """A whole sentence, of one line."""
    jobs: tuple[str, ...] = ()
    """The jobs that it concerns."""
    in_s: float = 0.0
    """Seconds after a controller began."""


@dataclass(frozen=True)
class _Said:
    """An action on one job: steps with the same `what`, `why` and time become one."""

    job: str
    what: str
    """With `{}` for the job or jobs."""
    why: str
    in_s: float = 0.0


def next_steps(seen: Seen) -> list[Step]:
    """All that would be done by a controller that began now, and by time alone after that."""
    steps = [*_fleet_before(seen), *_together(seen, _at_once(seen)), *_fleet_after(seen)]
    steps += _together(seen, _by_time(seen))
    return [*steps, *_waiting(seen)] or [Step(_nothing(seen))]


def next_of(seen: Seen, job: str) -> str:
    """What follows for one job."""
    known = seen.state.jobs.by_id[job]
    if (verdict := known.verdict) and not any(said.job == job for said in _at_once(seen)):
        late = "" if seen.standing.sealed else "; the fleet is not sealed yet"
        return f"nothing: attempt {verdict.attempt} is the verdict, {verdict.status}{late}"
    said = [*_at_once(seen), *_by_time(seen)]
    for step in _together(seen, [one for one in said if one.job == job]):
        return step.text
    if seen.state.mode != "run":
        return f"nothing before the fleet goes on: {seen.state.why or seen.state.mode}"
    return f"wait for a worker to claim attempt {known.attempt}"


def way_on(fleet: str, why: str) -> str:
    """The commands with which a user has a paused fleet go on."""
    option = "budget_hard_usd" if "hard budget" in why else "budget_usd"
    first = f"ct fleet set {fleet} {option}=..., then " if "budget" in why else ""
    return f"{first}ct fleet resume {fleet}"


def _fleet_before(seen: Seen) -> list[Step]:
    control = seen.standing.control
    told = next((one for one in reversed(seen.actions) if isinstance(one, SetControl)), None)
    if (
        told is None
        or seen.standing.sealed
        or (control and (control.mode, control.halt) == (told.mode, told.halt))
    ):
        return []
    why = f" ({told.why})" if told.why else ""
    halt = " and to end what runs" if told.halt else ""
    return [Step(f"tell workers to {_MODES[told.mode]}{halt}{why}")]


def _at_once(seen: Seen) -> list[_Said]:
    return [said for action in seen.actions if (said := _of_job(seen.state, action))]


def _of_job(state: State, action: Action) -> _Said | None:
    if isinstance(action, WriteFailed | Look | ReadEnding) and state.jobs.by_id[action.job].verdict:
        # The look at the store found the verdict after what asks for it.
        return None
    match action:
        case Give(job, attempt):
            only = " to machines that are not taken back" if action.safe else ""
            alone = ", alone on its worker" if action.alone else ""
            what = f"offer attempt {attempt} of {{}}{only}{alone}"
            return _Said(job, what, _why_again(state.jobs.by_id[job], attempt))
        case WriteFailed(job, attempt, category, summary):
            what = f"write the failed verdict of {{}}: {category} after attempt {attempt}"
            return _Said(job, what, summary or "no more attempts are due")
        case Replace(job, attempt):
            what = f"put the log of attempt {attempt} of {{}} in place of the failed verdict"
            return _Said(job, what, "it succeeded, but late")
        case Look(job):
            return _Said(job, "look for the verdict on {}", "an attempt says that there is one")
        case ReadEnding(job, attempt):
            return _Said(job, f"read how attempt {attempt} of {{}} ended", "a worker says so")
        case ReadSamples(job):
            return _Said(job, "read the log of {}", "its results were not told yet")
        case _:
            return None


def _why_again(job: Job, attempt: int) -> str:
    before = attempt - 1
    if job.reopened and job.reopened.after == before:
        return "it is tried anew"
    if not before:
        return "no worker has claimed it"
    category = (job.ends or {}).get(before, "worker_lost")
    if category == "worker_lost":
        return f"attempt {before} was lost: no heartbeat lists it"
    if category == "worker_died":
        return f"attempt {before} was lost: its worker is gone"
    summary = job.done.error_summary if isinstance(job.done, Ending) and job.done.n == before else None
    return f"attempt {before} ended as {category}" + (f" ({summary})" if summary else "")


def _fleet_after(seen: Seen) -> list[Step]:
    events = Counter(one.kind for one in seen.actions if isinstance(one, Emit) and one.kind not in _OFTEN)
    steps = [_of_fleet(seen, action) for action in seen.actions]
    if events:
        lacking = ", ".join(f"{count} {kind}" for kind, count in events.items())
        steps.insert(0, f"write events that the log lacks: {lacking}")
    return [Step(text) for text in steps if text]


def _of_fleet(seen: Seen, action: Action) -> str | None:
    jobs, most = seen.state.jobs, seen.state.machines.size.max_workers
    match action:
        case Start(count=count):
            living = f"{len(seen.workers) or 'none'} of at most {most} lives"
            return f"start {_number(count, 'worker')}: {_number(jobs.open, 'job')} open, {living}"
        case WriteSeal():
            return f"seal the fleet: all of {_number(len(jobs.by_id), 'job')} decided"
        case WriteReopening(jobs=failed, unscored=completed):
            among = [f"{len(failed)} that failed"] if failed else []
            among += [f"those without a score among {len(completed)} that completed"] if completed else []
            return f"try jobs anew: {' and '.join(among) or 'none is like that'}"
        case End(ids):
            return f"end {', '.join(ids)}: {'all is decided' if seen.standing.sealed else 'as it was asked'}"
        case Exit(code):
            return f"leave with code {code}"
        case _:
            return None


def _by_time(seen: Seen) -> list[_Said]:
    """What only waiting brings: attempts that no heartbeat lists are lost, and pauses before others end."""
    found: list[_Said] = []
    for seconds, action in seen.later:
        said = _of_job(seen.state, action)
        assert said is not None
        job = seen.state.jobs.by_id[said.job]
        if said.job in seen.state.jobs.running:
            holder = seen.holders.get(said.job, "nobody")
            living = any(one.id == holder for one in seen.workers)
            gone = "" if living else ", which is gone"
            why = f"attempt {job.attempt}, claimed by {holder}{gone}, is lost unless a heartbeat lists it"
            said = _Said(said.job, said.what, why)
        found.append(_Said(said.job, said.what, said.why, seconds))
    return found


def _waiting(seen: Seen) -> list[Step]:
    """What is done by workers alone."""
    jobs = seen.state.jobs
    given = {one.job for one in seen.actions if isinstance(one, Give)}
    offered = [id for id, job in jobs.by_id.items() if job.offered is not None and id not in given]
    offered = [id for id in offered if not jobs.by_id[id].verdict and id not in jobs.running]
    steps: list[Step] = []
    if offered:
        there = f"{seen.offers} wait in the queue"
        steps.append(Step(f"wait for workers to claim {_names(seen, offered)}: {there}", tuple(offered)))
    if seen.state.mode == "pause" and not seen.standing.sealed:
        steps.append(
            Step(f"begin nothing new: {seen.state.why}; to go on: {way_on(seen.state.fleet, seen.state.why)}")
        )
    return steps


def _nothing(seen: Seen) -> str:
    if seen.standing.sealed:
        return "nothing: all jobs are decided, and the fleet is sealed"
    return "nothing before something is heard"


def _together(seen: Seen, said: Iterable[_Said]) -> list[Step]:
    groups: dict[tuple[str, str, float], list[str]] = {}
    for one in said:
        groups.setdefault((one.what, one.why, one.in_s), []).append(one.job)
    steps: list[Step] = []
    for (what, why, in_s), jobs in groups.items():
        when = f"after {in_s:.0f} s " if in_s else ""
        steps.append(Step(f"{when}{what.format(_names(seen, jobs))}: {why}", tuple(jobs), in_s))
    return steps


def _names(seen: Seen, ids: Sequence[str]) -> str:
    if len(ids) > _NAMED:
        return f"{len(ids)} jobs, such as {job_name(seen, ids[0])}"
    return ", ".join(job_name(seen, id) for id in ids)


def job_name(seen: Seen, id: str) -> str:
    """How a person is told of a job."""
    job = seen.planned[id]
    return f"{id} ({job.sample}, epoch {job.epoch})"


def _number(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"
