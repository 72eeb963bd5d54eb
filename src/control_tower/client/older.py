"""Viewers without `/api/v1`: what of this client's work they can do, by the interface that they have."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from control_tower.client.prepared import Prepared, pieces
from control_tower.client.session import NotThere, Viewer
from control_tower.errors import OperationError, StateError
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.bundles import sample_range
from control_tower.logs.json_text import JsonObject, dumps, loads
from control_tower.storage.source import FileSource

if TYPE_CHECKING:
    from control_tower.client.upload import Overrides, Uploaded

MOST_DOCUMENTS = 50
MOST_BYTES = 4_000_000
"""Of documents in one request, without what stands around them."""
LARGEST_LOG = 5 * 1024**3
"""Bytes that one request may store."""

_PUT_SECONDS = 600


async def is_older(viewer: Viewer) -> bool:
    """Whether a viewer has no `/api/v1`; asked where something was not there."""
    try:
        await viewer.call("GET", "/api/v1/whoami")
    except NotThere:
        return True
    except StateError:
        pass
    return False


async def refuse_older(viewer: Viewer, what: str) -> None:
    """Says that a viewer is too old for something, if it is.

    Raises:
        StateError: It is.
    """
    if await is_older(viewer):
        raise StateError(f"{viewer.url}: this viewer has no /api/v1, which {what} needs; it must be updated")


async def upload_to_older(viewer: Viewer, ready: Prepared, overrides: Overrides) -> Uploaded:
    """Makes a run of a log: one request for the log, then batches of documents, with the last the header.

    Each call makes another run: these viewers cannot tell that they have the log.

    Raises:
        OperationError: The log or one of its documents is too large, or the viewer fails.
        ExpectedError: The viewer refuses it.
    """
    from control_tower.client.upload import Uploaded

    _check_sizes(ready)
    run_id = secrets.token_hex(16)
    key = f"{run_id}.eval"
    planned = {"filename": key, "size_bytes": ready.size}
    plan = (await viewer.call("POST", "/api/eval-logs/upload", json=planned, again=False)).json()
    stored = await _put(viewer, plan["url"], ready)
    log_url = f"s3://{plan['bucket']}/{key}"
    with EvalArchive.open(ready.path) as archive:
        documents = _documents(ready, archive, run_id, log_url, key, stored)
        batches, sent = _batches(documents), 0
        batch = next(batches)
        while batch:
            following = next(batches, None)
            body: JsonObject = {
                "trajectories": batch,
                "client": "control-tower",
                "schema_version": 3,
                "eval_log_sizes": {key: ready.size},
            }
            if following is None:
                body["run"] = _header(ready, overrides) | {"run_id": run_id, "eval_log_url": log_url}
            await viewer.call("POST", "/api/trajectories/register", content=dumps(body), headers=_JSON)
            sent, batch = sent + len(batch), following
    return Uploaded(run_id, f"{viewer.url}/runs/{run_id}", sent, existing=False, eval_log_url=log_url)


_JSON = {"Content-Type": "application/json"}


def _check_sizes(ready: Prepared) -> None:
    if ready.size > LARGEST_LOG:
        raise OperationError(f"{ready.path}: has {ready.size} bytes; this older viewer takes {LARGEST_LOG}")
    for line in ready.documents():
        if len(line) > MOST_BYTES:
            sample = loads(line)["eval_sample_id"]
            raise OperationError(
                f"{ready.path}: what is said of sample {sample} takes {len(line)} bytes; this older viewer "
                f"takes {MOST_BYTES}"
            )


async def _put(viewer: Viewer, url: str, ready: Prepared) -> JsonObject:
    """Sends the log to where the plan says, without the token; the ETag and version it got."""

    async def body() -> AsyncIterator[bytes]:
        with FileSource(ready.path) as source:
            for piece in pieces(source, 0, ready.size):
                yield piece

    headers = {"If-None-Match": "*", "Content-Length": str(ready.size)}
    answer = await viewer.send_outside("PUT", url, body, headers, _PUT_SECONDS)
    if answer.is_success:
        version = answer.headers.get("x-amz-version-id")
        return {"e_tag": answer.headers.get("ETag", ""), **({"version_id": version} if version else {})}
    raise OperationError(f"{viewer.url}: the log could not be stored: status {answer.status_code}")


def _documents(
    ready: Prepared, archive: EvalArchive, run_id: str, log_url: str, key: str, stored: JsonObject
) -> Iterator[JsonObject]:
    for line in ready.documents():
        document: JsonObject = loads(line)
        sample = SampleKey(document["eval_sample_id"], document["epoch"])
        own: Any = document.get("trajectory_id")
        yield document | {
            "trajectory_id": own or hashlib.sha256(f"{run_id}/{sample.member}".encode()).hexdigest()[:32],
            "run_id": run_id,
            "source_file": ready.path.name,
            "eval_log_url": f"{log_url}/samples/sample/{quote(sample.id, safe=':', errors='replace')}",
            "eval_sample_range": sample_range(archive, sample, stored_as=key, **stored),
            "timing": {**(document.get("timing") or {}), "converted_at": round(time.time() * 1000)},
        }


def _batches(documents: Iterator[JsonObject]) -> Iterator[list[JsonObject]]:
    batch: list[JsonObject] = []
    size = 0
    for document in documents:
        length = len(dumps(document))
        if batch and (len(batch) == MOST_DOCUMENTS or size + length > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(document)
        size += length
    yield batch


def _header(ready: Prepared, overrides: Overrides) -> JsonObject:
    from control_tower.logs.run_header import RunDigest, run_document

    digest = RunDigest()
    for line in ready.documents():
        digest.add(loads(line))
    return run_document(ready.header, digest) | overrides.as_json()
