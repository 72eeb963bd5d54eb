"""What runs are named by, wherever a log is asked for: a path, a run's id or URL, an object in S3."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from control_tower import config
from control_tower.client.prepared import Progress
from control_tower.client.session import open_viewer, run
from control_tower.errors import StateError, UsageError

Kind = Literal["run", "trajectory"]

S3 = "s3://"
_FOLDER = "s3://local/"
"""How viewers that keep logs in a folder call it."""

_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_SEGMENTS: dict[str, Kind] = {"trajectories": "trajectory", "runs": "run"}


@dataclass(frozen=True)
class Named:
    """A run or a trajectory that somebody named."""

    kind: Kind
    id: str
    viewer: str | None
    """Address of the viewer that was named with it; None is the configured one."""

    @property
    def log_path(self) -> str:
        """Where its log is, below the viewer's address."""
        return f"/api/{'runs' if self.kind == 'run' else 'trajectories'}/{self.id}/eval"


def named(text: str, bare: Kind = "run") -> Named:
    """What an id or an address of a viewer's page or API names.

    Args:
        text: Such as `https://viewer.example/runs/<id>`; what follows the id does not matter.
        bare: What an id alone is of.

    Raises:
        UsageError: It names neither.
    """
    if "://" not in text:
        if not _ID.fullmatch(text):
            raise UsageError(f"{text!r} is neither the id nor the URL of a {bare}")
        return Named(bare, text, None)
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme == "hawk":
        raise UsageError(f"{text}: Hawk is not supported; download its log and name the file")
    segments = parts.path.split("/")
    for segment, kind in _SEGMENTS.items():
        if segment not in segments[:-1]:
            continue
        id = unquote(segments[segments.index(segment) + 1])
        if parts.scheme in ("http", "https") and parts.netloc and _ID.fullmatch(id):
            return Named(kind, id, _viewer(parts.scheme, parts.netloc, segments))
    raise UsageError(f"{config.redact(text)!r} is not the URL of a run: https://viewer/runs/<id>")


def local_copy(source: str) -> Path:
    """The log that a command's SOURCE names; that of a run is downloaded, if it is not here already.

    Raises:
        StateError: It is no file, and neither a run's id or URL nor an object's address.
        ExpectedError: It cannot be downloaded.
    """
    path = Path(source)
    if "://" not in source:
        if path.is_file():
            return path
        if path.suffix == ".eval" or path.exists() or not _ID.fullmatch(source):
            raise StateError(f"{source}: there is no such file")
    try:
        return download_archive(source, config.cache_dir() / "eval-logs")
    except StateError as error:
        if "://" in source:
            raise
        raise StateError(f"{source}: there is no such file; {error}") from error


def run_of(source: str) -> str | None:
    """The id of the run that a SOURCE of `local_copy` names; None when it is a file or an object."""
    if Path(source).is_file() or source.startswith(S3):
        return None
    return named(source).id


def current_log(source: str) -> Path:
    """The same in the current format; an older log is converted for as long as the process runs.

    Raises:
        ExpectedError: As `local_copy`, or it cannot be converted.
    """
    from control_tower.conversion.current import current_path

    return current_path(local_copy(source))


def download_archive(
    source: str, folder: Path, progress: Progress | None = None, *, again: bool = False
) -> Path:
    """Downloads a log into a folder, unless what is there is what the viewer or S3 has.

    Args:
        source: A run's or a trajectory's id or URL, or the address of an object in S3.
        folder: Where downloads are kept.
        progress: Is told how far it is.
        again: Download it whatever is there.

    Raises:
        UsageError: It names nothing of that kind.
        ExpectedError: It cannot be downloaded.
    """
    from control_tower.client.download import fetch, fetch_s3, safe_name

    if source.startswith(S3):
        target = folder / f"{safe_name(source.removeprefix(S3).removesuffix('.eval'))}.eval"
        try:
            return fetch_s3(source, target, progress, again=again)
        except StateError as error:
            if not source.startswith(_FOLDER):
                raise
            run_id = source.removeprefix(_FOLDER).removesuffix(".eval")
            raise StateError(f"{source}: is in the folder of a viewer; name the run: {run_id}") from error
    what = named(source)

    async def download() -> Path:
        async with open_viewer(what.viewer) as viewer:
            target = folder / f"{safe_name(what.id)}.eval"
            return await fetch(viewer, what.log_path, target, progress, again=again)

    return run(download())


def _viewer(scheme: str, netloc: str, segments: list[str]) -> str:
    """The address in front of what the viewer itself calls its pages and endpoints."""
    first = min(segments.index(name) for name in _SEGMENTS if name in segments)
    prefix = "/".join(segments[:first])
    return f"{scheme}://{netloc}" + re.sub(r"/api(/v\d+)?$", "", prefix)
