"""Single samples from a viewer, each as a file of its own."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import httpx

from control_tower.client.download import safe_name
from control_tower.client.runs import get_run, trajectory_ids
from control_tower.client.session import NotThere, Viewer, all_of, open_viewer, run
from control_tower.client.sources import Named, named
from control_tower.errors import ExpectedError, OperationError, StateError

AT_ONCE = 4
ATTEMPTS = 3
DEFAULT_LIMIT = 20
"""How many trajectories filters alone choose."""


@dataclass(frozen=True)
class Wanted:
    """Which trajectories, and as what."""

    source: str | None
    """A run or a trajectory by id or URL; None takes whatever the filters choose."""
    filters: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    """By the names of `GET /api/trajectories`."""
    limit: int | None = None
    form: Literal["eval", "json"] = "eval"
    overwrite: bool = False


@dataclass
class Done:
    """What became of them."""

    folder: Path
    written: int = 0
    kept: int = 0
    """There already."""
    failed: list[str] = field(default_factory=list[str])


def download_bundles(wanted: Wanted, folder: Path) -> Done:
    """Downloads trajectories.

    Args:
        wanted: Which.
        folder: Where to; those of a run go into a folder of its name in it.

    Raises:
        StateError: There is no such run or trajectory, none matches, or the one that is named is here.
        ExpectedError: The viewer cannot be reached, or refuses it.
    """
    return run(_download(wanted, folder))


async def _download(wanted: Wanted, folder: Path) -> Done:
    what = named(wanted.source, bare="trajectory") if wanted.source else None
    async with open_viewer(what.viewer if what else None) as viewer:
        if what and what.kind == "trajectory":
            try:
                return await _download_one(viewer, what, wanted, folder)
            except NotThere:
                if wanted.source != what.id:
                    raise
        if what:
            await get_run(viewer, what.id)
            ids = await trajectory_ids(viewer, {**wanted.filters, "run_id": what.id}, wanted.limit)
            return await _download_all(viewer, ids, wanted, folder / safe_name(what.id))
        ids = await trajectory_ids(viewer, wanted.filters, wanted.limit or DEFAULT_LIMIT)
        if not ids:
            raise StateError(f"{viewer.url}: no trajectory matches")
        return await _download_all(viewer, ids, wanted, folder)


async def _download_one(viewer: Viewer, what: Named, wanted: Wanted, folder: Path) -> Done:
    target = folder / f"{safe_name(what.id)}.{wanted.form}"
    if target.exists() and not wanted.overwrite:
        raise StateError(f"{target}: is here already; --overwrite downloads it again")
    await _save(viewer, what.id, wanted.form, target)
    return Done(folder, written=1)


async def _download_all(viewer: Viewer, ids: list[str], wanted: Wanted, folder: Path) -> Done:
    done = Done(folder)
    free = asyncio.Semaphore(AT_ONCE)

    async def one(id: str) -> None:
        target = folder / f"{safe_name(id)}.{wanted.form}"
        if target.exists() and not wanted.overwrite:
            done.kept += 1
            return
        async with free:
            try:
                await _save(viewer, id, wanted.form, target)
                done.written += 1
            except ExpectedError as error:
                done.failed.append(f"{id}: {error}")

    await all_of(one(id) for id in ids)
    return done


async def _save(viewer: Viewer, id: str, form: str, target: Path) -> None:
    """Downloads a trajectory; the file is whole or not there.

    Raises:
        OperationError: It cannot be written, or the download breaks off again and again.
    """
    path = f"/api/trajectories/{id}" + ("/eval" if form == "eval" else "")
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in reversed(range(ATTEMPTS)):
            try:
                async with viewer.stream(path) as answer:
                    with part.open("wb") as file:
                        async for piece in answer.aiter_bytes():
                            file.write(piece)
                break
            except httpx.TransportError as error:
                if not left:
                    raise OperationError(f"the download broke off: {error}") from error
                await asyncio.sleep(0.5)
        part.replace(target)
    except OSError as error:
        raise OperationError(f"{target}: cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
