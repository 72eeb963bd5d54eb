"""Where each object of a fleet stands, and the names of jobs and fleets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

RECIPE = 1
"""Version of how job ids are made. Another one makes every job a new one, so it changes by intent only."""


def job_id(identity: dict[str, Any]) -> str:
    """The name of a job: the same for all who mean the same work.

    Args:
        identity: All that decides the result: task, arguments, sample ids, epoch, limits, model roles,
            sandbox, digests of code and images. Finite numbers only.

    Returns:
        24 hex digits.
    """
    text = json.dumps({**identity, "v": RECIPE}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def fleet_id(jobs: Iterable[str], nonce: str = "") -> str:
    """The name of a fleet, 16 hex digits.

    Args:
        jobs: Its job ids, in any order.
        nonce: Makes a fleet of its own out of jobs that had one.
    """
    return hashlib.sha256("\n".join([*sorted(jobs), nonce]).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Keys:
    """The keys of one fleet."""

    fleet: str

    @property
    def verdicts(self) -> str:
        """Prefix of all verdicts, and of documents that are none."""
        return f"{self.fleet}/"

    @property
    def claims(self) -> str:
        """Prefix of all claims."""
        return f"{self.fleet}/claims/"

    @property
    def attempts(self) -> str:
        """Prefix of what attempts left that did not become the verdict."""
        return f"{self.fleet}/attempts/"

    @property
    def control(self) -> str:
        """What the controller tells all workers."""
        return f"{self.fleet}/control.json"

    @property
    def lease(self) -> str:
        """Who the controller is."""
        return f"{self.fleet}/controller.json"

    def verdict(self, job: str) -> str:
        """The accepted log of a job."""
        return f"{self.fleet}/{job}.eval"

    def claim(self, job: str, attempt: int) -> str:
        """Whose an attempt is."""
        return f"{self.claims}{job}.{attempt}"

    def outcome(self, job: str, attempt: int) -> str:
        """How an attempt ended that is not the verdict."""
        return f"{self.attempts}{job}.{attempt}.json"

    def log(self, job: str, attempt: int) -> str:
        """The log of such an attempt."""
        return f"{self.attempts}{job}.{attempt}.eval"

    def output(self, job: str, attempt: int) -> str:
        """The end of what such an attempt wrote to its output."""
        return f"{self.attempts}{job}.{attempt}.log"

    @property
    def fleet_file(self) -> str:
        """What all jobs share; created last, so that the fleet is real when it is there."""
        return f"{self.fleet}/fleet.json"

    @property
    def jobs(self) -> str:
        """All jobs, a line each."""
        return f"{self.fleet}/jobs.jsonl.zst"

    @property
    def header(self) -> str:
        """A log without samples whose header is that of the whole run."""
        return f"{self.fleet}/plan/header.eval"

    @property
    def rates(self) -> str:
        """The driver's table of prices."""
        return f"{self.fleet}/rates.json"

    @property
    def asked(self) -> str:
        """Prefix of what users ask of the controller: `asked/<number>.json`, created."""
        return f"{self.fleet}/asked/"

    def ask(self, number: int) -> str:
        """One of these."""
        return f"{self.asked}{number}.json"

    @property
    def reopenings(self) -> str:
        """Prefix of what says which jobs are tried anew: `reopened/<number of the asked>.json`, created."""
        return f"{self.fleet}/reopened/"

    def reopening(self, number: int) -> str:
        """One of these."""
        return f"{self.reopenings}{number}.json"

    @property
    def seals(self) -> str:
        """Prefix of all seals; the one with the highest number counts."""
        return f"{self.fleet}/seal/"

    def seal(self, number: int) -> str:
        """The frozen outcome of all jobs."""
        return f"{self.seals}{number}.json"

    @staticmethod
    def number_of(key: str) -> int:
        """The number of a seal, a reopening or an asked; 0 when the key is none of them."""
        name = key.rpartition("/")[2].removesuffix(".json")
        return int(name) if name.isdecimal() else 0

    def job_of(self, key: str) -> str | None:
        """The job whose verdict this key is, None when it is another key."""
        name = key.removeprefix(self.verdicts)
        return name.removesuffix(".eval") if name.endswith(".eval") and "/" not in name else None

    def attempt_of(self, key: str) -> tuple[str, int] | None:
        """The attempt that a claim or an outcome belongs to, None when the key is another."""
        job, _, number = key.rpartition("/")[2].removesuffix(".json").rpartition(".")
        return (job, int(number)) if job and number.isdecimal() else None
