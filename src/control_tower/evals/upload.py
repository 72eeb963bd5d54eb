"""What becomes of a finished log: a run, in the viewer or in the local data folder."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from control_tower.client.session import NotThere, Viewer, open_viewer, run
from control_tower.client.tokens import credentials
from control_tower.client.unsent import Unsent, keep_unsent, sent
from control_tower.client.upload import Overrides, Uploaded, upload_log
from control_tower.errors import ExpectedError, OperationError, StateError
from control_tower.logs.archive import EvalArchive

Wish = Literal["if possible", "always", "never"]
"""Whether a log becomes a run: where that fails, only `always` makes it an error, once the log is safe."""


@dataclass(frozen=True)
class Outcome:
    """What became of a log."""

    run: Uploaded | None = None
    problem: str | None = None
    """Why it is no run though it should be, and the command that makes it one."""

    def as_json(self) -> dict[str, Any]:
        """As `--format json` prints it."""
        if self.run is None:
            return {"run_id": None, "run_url": None, "not_uploaded": self.problem}
        return {"run_id": self.run.run_id, "run_url": self.run.url}

    def line(self) -> str | None:
        """As a person reads it; None where nothing was to become of it."""
        if self.run is not None:
            return f"Run: {self.run.url}"
        return f"Not uploaded: {self.problem}" if self.problem else None


def wish_of(upload: bool | None) -> Wish:
    """What `--upload` and `--no-upload` ask for; None is neither."""
    return "if possible" if upload is None else "always" if upload else "never"


def check_viewer(wish: Wish) -> str | None:
    """Looks before a run whether a viewer over the network will take its log.

    Returns:
        Why it will not, though the run may go on.

    Raises:
        ExpectedError: It will not, and has to.
    """
    if wish == "never":
        return None
    try:
        if credentials() is not None:
            run(_check())
    except ExpectedError as error:
        if wish == "always":
            raise
        return str(error)
    return None


def upload_finished(
    log: Path, wish: Wish, tags: Sequence[str] = (), name: str | None = None, *, unfinished: bool = False
) -> Outcome:
    """Makes a run of a log that was just written, if it is to become one.

    Args:
        log: It; only one with status success becomes a run by itself.
        wish: Whether it is to.
        tags: Instead of the log's.
        name: Instead of the log's.
        unfinished: Whether one of another status becomes a run, too.
    """
    if wish == "never":
        return Outcome()
    overrides = Overrides(name=name, tags=tuple(tags) or None)
    called = ["--run-name", name] if name is not None else []
    called += [word for tag in tags for word in ("--tag", tag)]
    retry = shlex.join(["ct", "runs", "make", str(log), *called])
    with EvalArchive.open(log) as archive:
        status = archive.header().get("status")
    if status != "success" and not unfinished:
        return Outcome(problem=f"the log's status is {status}; to make a run of it all the same: {retry}")
    try:
        made = upload_log(log, overrides)
    except (ExpectedError, OSError) as error:
        keep_unsent(Unsent(log, _viewer(), name, overrides.tags), str(error))
        return Outcome(problem=f"{error}; the log is safe, to try again: {retry}")
    sent(log)
    return Outcome(made)


def require_run(outcome: Outcome, wish: Wish) -> None:
    """Refuses to call done what had to become a run and did not.

    Raises:
        OperationError: With the command that makes it one.
    """
    if wish == "always" and outcome.run is None:
        raise OperationError(f"not uploaded: {outcome.problem}")


async def _check() -> None:
    async with open_viewer() as viewer:
        await _check_token(viewer)


async def _check_token(viewer: Viewer) -> None:
    try:
        told = (await viewer.call("GET", "/api/v1/whoami", again=False)).json()
    except NotThere:
        probe = {"filename": "control-tower-credential-check.eval"}
        await viewer.call("GET", "/api/eval-logs/head", params=probe, accept=frozenset({404}))
        return
    if "runs:write" not in told["scopes"]:
        raise StateError(
            f"{viewer.url}: the token of {told['name']} may not upload; log in as somebody who may: "
            f"`ct login --url {viewer.url}`"
        )


def _viewer() -> str | None:
    try:
        found = credentials()
    except ExpectedError:
        return None
    return found.url if found else None
