"""A fleet before it starts: its jobs and what all workers must know, as the store keeps them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from control_tower import config as configuration
from control_tower.errors import StateError, ValidationError, did_you_mean
from control_tower.evals.secret_names import secret_names
from control_tower.fleet.keys import Keys, fleet_id
from control_tower.fleet.place import local_place
from control_tower.fleet.ports import Store
from control_tower.fleet.settings import FleetSettings
from control_tower.fleet.wire import Unreadable, Wire, dumps
from control_tower.logs.compression import BadData, compress, decompress
from control_tower.logs.zip_records import ZSTD

if TYPE_CHECKING:
    from control_tower.evals.dataset import PlayedSample
    from control_tower.evals.plan import RunPlan

_NEVER_SENT = ("AWS_", "CONTROL_TOWER_")
"""Variables that no worker gets, whatever asks for them."""


class Job(Wire):
    """One sample at one epoch."""

    id: str
    sample: str
    epoch: int
    task: str
    """`<environment>/<main>[+<side>]`, as events name it."""
    attack: bool
    """Whether it has a side task."""
    side: str | None = None
    """Its side tasks, joined by `+`."""


class FleetFile(Wire):
    """`<fleet>/fleet.json`: what all jobs share. The fleet is real when it is there."""

    v: int = 1
    fleet: str
    created: str
    """ISO time."""
    config: dict[str, Any]
    """The RunConfig, its roles bound."""
    command: str | None
    settings: FleetSettings
    jobs: int
    folder: str
    """The working folder of the command: relative paths mean the same on workers."""
    log_dir: str
    """Where the events and the merged log go, absolute."""
    secrets: tuple[str, ...] = ()
    """Names of the variables that workers get through the secrets, never their values."""
    pricing: bool = True
    """Whether workers price with the driver's table, `<fleet>/rates.json`."""


@dataclass(frozen=True)
class FleetPlan:
    """A fleet and its jobs, longest first."""

    file: FleetFile
    jobs: tuple[Job, ...]
    rates: str | None = None
    """The driver's rate table as JSON; None when nothing has a price, or the plan was read back."""

    @property
    def fleet(self) -> str:
        """Its id."""
        return self.file.fleet


def task_name(environment: str, mains: Iterable[str], sides: Iterable[str]) -> str:
    """How events name the tasks of a sample: `<environment>/<main>[+<side>]`."""
    tasks = "+".join([*mains, *sides])
    return f"{environment}/{tasks}" if tasks else environment


def plan_fleet(plan: RunPlan, settings: FleetSettings, log_dir: Path) -> FleetPlan:
    """The fleet that plays a run.

    Args:
        plan: The run, its models bound.
        settings: What the user wants of the fleet.
        log_dir: Where its events and merged log go.

    Raises:
        ValidationError: Two jobs mean the same work.
        OperationError: A folder of code cannot be read, or a rate file.
    """
    jobs = tuple(_jobs(plan))
    _check_distinct(jobs)
    nonce = secrets.token_hex(8) if settings.new_fleet else ""
    pricing, rates = _rates(plan)
    file = FleetFile(
        fleet=fleet_id((job.id for job in jobs), nonce),
        created=plan.started.isoformat(timespec="seconds"),
        config=plan.config.model_dump(mode="json"),
        command=plan.command,
        settings=settings,
        jobs=len(jobs),
        folder=str(Path.cwd()),
        log_dir=str(log_dir.resolve()),
        secrets=tuple(name for name in secret_names(plan) if not name.startswith(_NEVER_SENT)),
        pricing=pricing,
    )
    return FleetPlan(file, jobs, rates)


async def publish(fleet: FleetPlan, header: Path | None, store: Store) -> bool:
    """Makes a fleet real: writes its jobs, prices and header, then `fleet.json`.

    Args:
        fleet: The fleet.
        header: A log without samples with the header of the whole run, as `header_log` makes it; None where
            that follows later.
        store: Where to.

    Returns:
        False when it was there already; what stands in its `fleet.json` stays.

    Raises:
        Unreachable: The store does not answer; safe to repeat.
    """
    keys = Keys(fleet.fleet)
    if await store.head(keys.fleet_file) is not None:
        return False
    lines = "".join(f"{job.text()}\n" for job in fleet.jobs)
    await store.create(keys.jobs, compress(lines.encode()))
    if fleet.rates is not None:
        await store.create(keys.rates, fleet.rates.encode())
    if header is not None:
        await store.create(keys.header, header)
    return await store.create(keys.fleet_file, fleet.file.text().encode()) is not None


async def read_fleet(store: Store, fleet: str) -> FleetPlan:
    """A fleet as it was planned.

    Raises:
        StateError: There is none of this id, or it cannot be read.
        Unreachable: The store does not answer.
    """
    keys = Keys(fleet)
    found = await store.get(keys.fleet_file)
    if found is None:
        near = did_you_mean(fleet, [file.fleet for file in known_fleets(local_place(fleet).root)])
        raise StateError(f"there is no fleet {fleet!r}{near}")
    jobs = await store.get(keys.jobs)
    try:
        file = FleetFile.read(found.body)
        lines = b"".join(decompress(ZSTD, [jobs.body])).splitlines() if jobs else []
        planned = tuple(Job.read(line) for line in lines)
    except (Unreadable, BadData) as error:
        raise StateError(f"the plan of fleet {fleet} cannot be read: {error}") from None
    if len(planned) != file.jobs:
        raise StateError(f"the plan of fleet {fleet} names {len(planned)} of its {file.jobs} jobs")
    return FleetPlan(file, planned)


def differences(there: FleetFile, wanted: FleetFile) -> list[str]:
    """What a fleet was planned with that differs from what is wanted now, one text each."""
    pairs: list[tuple[str, Any, Any]] = [("prices on workers", there.pricing, wanted.pricing)]
    for before, now in (
        (there.config, wanted.config),
        (there.settings.model_dump(mode="json"), wanted.settings.model_dump(mode="json")),
    ):
        pairs += [(name, before.get(name), now.get(name)) for name in {**before, **now}]
    return [f"{name} is {_shown(one)}, not {_shown(other)}" for name, one, other in pairs if one != other]


def known_fleets(root: Path) -> list[FleetFile]:
    """The fleets in a folder of fleets, the newest first; what is not readable is left out."""
    found: list[FleetFile] = []
    for path in root.glob("*/fleet.json"):
        with suppress(OSError, Unreadable):
            found.append(FleetFile.read(path.read_bytes()))
    return sorted(found, key=lambda file: (file.created, file.fleet), reverse=True)


def header_log(plan: RunPlan, folder: Path) -> Path:
    """Writes a log without samples that has the header of the whole run.

    Raises:
        ExpectedError: As `run_local`.
    """
    from control_tower.evals.header import header_metadata
    from control_tower.evals.local import run_local
    from control_tower.logs.archive import edit_header

    def whole(header: dict[str, Any]) -> dict[str, Any]:
        ids = [sample.id for sample in plan.samples]
        dataset = {**header["eval"]["dataset"], "samples": len(ids), "sample_ids": ids}
        return {
            **header,
            "eval": {**header["eval"], "dataset": dataset, "metadata": header_metadata(plan)},
        }

    # Inspect takes milliseconds for each sample of its dataset, though it plays none of them.
    log = run_local(plan.only(plan.samples[0].id), folder, only=()).results.log
    edit_header(log, whole)
    return log


def _jobs(plan: RunPlan) -> Iterator[Job]:
    """The longest first: of recordings that is known, all others come in the order of the selection."""
    from control_tower.fleet.identity import job_ids

    def length(planned: tuple[PlayedSample, int, str]) -> int:
        origin = planned[0].selected.origin
        return -origin.sample.turns if origin else 0

    for sample, epoch, ident in sorted(job_ids(plan), key=length):
        tasks, env_id = sample.tasks, sample.selected.env_id
        sides = [task.id for task in tasks.sides]
        yield Job(
            id=ident,
            sample=sample.id,
            epoch=epoch,
            task=task_name(env_id, [task.id for task in tasks.mains], sides),
            attack=bool(sides),
            side="+".join(sides) or None,
        )


def _check_distinct(jobs: Iterable[Job]) -> None:
    known: dict[str, Job] = {}
    for job in jobs:
        other = known.setdefault(job.id, job)
        if other is not job:
            raise ValidationError(
                f"{job.sample} (epoch {job.epoch}) means the same work as {other.sample} (epoch "
                f"{other.epoch}), so both have the job id {job.id}; leave one out"
            )


def _rates(plan: RunPlan) -> tuple[bool, str | None]:
    """Whether anything is priced, and the prices of the run's models where any has one."""
    from control_tower.models.rate_sources import Prices

    if configuration.get("pricing") == "off":
        return False, None
    table = Prices().table(spec.full_name for spec in plan.config.model_roles.values())
    return True, table.model_dump_json() if table.rows else None


def _shown(value: Any) -> str:
    text = dumps(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
