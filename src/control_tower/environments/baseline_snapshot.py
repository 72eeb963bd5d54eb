"""What a scorer needs to remember of the world before the agent acted, kept on the host."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from inspect_ai.util import Store

STORE_KEY_PREFIX = "baseline_snapshot:"

SnapshotFunction = Callable[[], Awaitable[Mapping[str, Any]]]


def plain_ident(text: str) -> str:
    """An identifier for a store key: everything but letters, digits, `_` and `.` becomes `_`."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", text)


class BaselineSnapshot:
    """An async function whose JSON object is taken after set-up and handed to the scorer later.

    It is kept in the sample's store and never in the agent's machine. Calling the object runs the
    function, outside a sample too.
    """

    def __init__(self, fn: SnapshotFunction, ident: str | None = None) -> None:
        """Wrap `fn`; `ident` is its key, by default the name of the module that defines it."""
        self.fn = fn
        self._resolved_ident = plain_ident(ident if ident is not None else _defining_module(fn))

    @property
    def ident(self) -> str:
        """The key under which the snapshot is kept."""
        return self._resolved_ident

    async def __call__(self) -> dict[str, Any]:
        """Run the function; nothing is stored."""
        return dict(await self.fn())

    async def capture(self, namespace: str = "") -> dict[str, Any]:
        """Run the function and keep its result in the current sample's store.

        Args:
            namespace: the setting's name, so that two settings' snapshots never meet.

        Raises:
            EnvironmentNotReady and whatever the function raises.
        """
        snapshot = await self()
        _current_store().set(self.store_key(namespace), snapshot)
        return snapshot

    def get(self) -> dict[str, Any]:
        """What was captured in the current sample; empty when nothing was."""
        store = _current_store()
        for key in store.keys():  # noqa: SIM118 - a Store is no mapping
            if key.startswith(STORE_KEY_PREFIX) and key.rsplit(":", 1)[-1] == self.ident:
                return dict(cast(Mapping[str, Any], store.get(key)))
        return {}

    def store_key(self, namespace: str = "") -> str:
        """The store key of a namespace's snapshot."""
        return f"{STORE_KEY_PREFIX}{namespace}:{self.ident}" if namespace else STORE_KEY_PREFIX + self.ident


def baseline_snapshot(fn: SnapshotFunction) -> BaselineSnapshot:
    """Make an async function a baseline snapshot; a decorator."""
    return BaselineSnapshot(fn)


linux_baseline_snapshot = baseline_snapshot
"""The name older scorer files use."""


def _defining_module(fn: SnapshotFunction) -> str:
    return getattr(fn, "__module__", None) or type(fn).__module__


def _current_store() -> Store:
    from inspect_ai.util import store

    return store()
