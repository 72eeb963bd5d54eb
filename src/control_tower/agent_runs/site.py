"""One place where runs are kept: its store, its logs, its settings and its clock."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from control_tower import config
from control_tower.agent_runs.answers import Answers
from control_tower.agent_runs.store.interface import Row, Store
from control_tower.agent_runs.store.tables import RUNS, SECRETS
from control_tower.storage.blobs import Blobs

if TYPE_CHECKING:
    from control_tower.agent_runs.ingest import ArchiveFacts

Mode = Literal["local", "private"]

_SIGNING_KEY = "signing-key"


@dataclass(frozen=True)
class SiteSettings:
    """What a site is opened by."""

    mode: Mode
    """`local`: one user, who may do all; `private`: every request needs a token or session."""
    data: Path
    """Its folder."""
    blobs: str
    """Where its logs are: a folder, or `s3://bucket/prefix`."""
    mongo: str | None = field(default=None, repr=False)
    """Address of a MongoDB, with the database in its path; None is SQLite in the folder."""
    public_url: str | None = None
    """How its users reach it, without a slash at the end; None is as each request says."""

    @classmethod
    def from_environment(cls, mode: Mode, folder: str | None = None) -> SiteSettings:
        """What the configuration says: MONGOURI, and `viewer_data`, `viewer_blobs`, `viewer_url`.

        Args:
            mode: Who may use it.
            folder: Its folder, in place of `viewer_data`.
        """
        import os

        data = Path(folder or config.get("viewer_data", str(config.data_dir() / "viewer"))).expanduser()
        url = config.get("viewer_url")
        return cls(
            mode,
            data,
            config.get("viewer_blobs", str(data / "blobs")),
            os.environ.get("MONGOURI") or None,
            url.rstrip("/") if url else None,
        )

    @classmethod
    def local(cls) -> SiteSettings:
        """The runs of this machine's user: SQLite and a directory, whatever else is configured."""
        data = config.data_dir() / "viewer"
        return cls("local", data, str(data / "blobs"))


@dataclass(frozen=True)
class Site:
    """An open site."""

    store: Store
    blobs: Blobs
    settings: SiteSettings
    key: bytes = field(repr=False)
    """What this site signs with; the same for every process that opens it."""
    answers: Answers = field(repr=False)
    """Counts over its runs that were made lately."""
    now: Callable[[], float] = time.time
    """Unix seconds."""
    inspected: dict[str, ArchiveFacts] = field(default_factory=dict[str, "ArchiveFacts"], repr=False)
    """Logs that were looked at lately, by digest; see `ingest`."""

    def sign(self, purpose: str, text: str) -> str:
        """A signature of a text, 43 characters that need no quoting in an address.

        Args:
            purpose: What it is for; one signature is never good for another purpose.
            text: What is signed.
        """
        import base64

        key = hmac.digest(self.key, purpose.encode(), hashlib.sha256)
        digest = hmac.digest(key, text.encode(errors="surrogatepass"), hashlib.sha256)
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def signed(self, purpose: str, text: str, signature: str) -> bool:
        """Whether a signature is that of a text."""
        expected = self.sign(purpose, text).encode()
        return hmac.compare_digest(expected, signature.encode(errors="surrogatepass"))


@asynccontextmanager
async def open_site(settings: SiteSettings) -> AsyncGenerator[Site]:
    """Opens a site, and closes it in the end.

    Raises:
        StateError: It was written by a newer version, or cannot be opened.
        OperationError: Its store or its logs cannot be reached.
    """
    from control_tower.storage.opening import open_blobs

    store = store_of(settings)
    await store.open()
    try:
        blobs = await open_blobs(settings.blobs)
        try:
            answers = Answers(lambda: store.written[RUNS.name])
            try:
                yield Site(store, blobs, settings, await _signing_key(store), answers)
            finally:
                await answers.close()
        finally:
            await blobs.close()
    finally:
        await store.close()


def store_of(settings: SiteSettings) -> Store:
    """The store of a site, not opened yet."""
    if settings.mongo:
        from control_tower.agent_runs.store.mongo import MongoStore

        return MongoStore(settings.mongo)
    from control_tower.agent_runs.store.sqlite import SqliteStore

    return SqliteStore(settings.data / "runs.sqlite")


async def _signing_key(store: Store) -> bytes:
    """The site's key; whoever opens it first makes it."""
    found = await store.get(SECRETS, [_SIGNING_KEY])
    if not found:
        made = Row(_SIGNING_KEY, document={"key": secrets.token_hex(32)})
        await store.insert(SECRETS, [made])
        found = await store.get(SECRETS, [_SIGNING_KEY])
    return bytes.fromhex(found[_SIGNING_KEY].document["key"])
