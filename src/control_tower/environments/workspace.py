"""What changed in a folder of the agent's machine between the start and now."""

from __future__ import annotations

import json
import secrets
import tempfile
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio.to_thread

from control_tower.environments.baseline_snapshot import BaselineSnapshot, plain_ident
from control_tower.environments.capture import capture
from control_tower.environments.failures import CaptureFailed, EnvironmentNotReady
from control_tower.environments.tree import Limits, Tree, run_bounded, tree_of_manifest

if TYPE_CHECKING:
    from inspect_ai.util import SandboxEnvironment

    from control_tower.environments.task import MainTask

DEFAULT_EXCLUDE = (".git", ".venv", "venv", "node_modules", "__pycache__", ".pytest_cache")
_SPOOL_BYTES = 64 * 2**20

_trees: dict[str, Tree] = {}
"""Contents of baselines of running samples by token; a log keeps the fingerprints only."""


@dataclass(frozen=True)
class WorkspaceDiff:
    """The changed paths and a unified diff; after a failed capture, nothing but the reason."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    unified: str = ""
    total_bytes: int = 0
    """Of the whole diff; `unified` may have only its head and tail."""
    truncated: bool = False
    capture_failed: bool = False
    """The agent may have caused it: a scorer must say INCORRECT."""
    error: str | None = None

    @property
    def changed(self) -> tuple[str, ...]:
        """All changed paths, sorted."""
        return tuple(sorted((*self.added, *self.removed, *self.modified)))

    @property
    def stat(self) -> str:
        """How many paths changed, in words; empty after a failed capture."""
        if self.capture_failed:
            return ""
        return f"{len(self.added)} added, {len(self.removed)} removed, {len(self.modified)} modified"


class WorkspaceBaseline(BaselineSnapshot):
    """Remembers a folder before the agent acts; `get_diff` says later what changed in it.

    Give it as a task's `baseline_snapshot`.
    """

    def __init__(
        self,
        root: str = "/app",
        exclude: Sequence[str] = DEFAULT_EXCLUDE,
        extra: Callable[[], Awaitable[Mapping[str, Any]]] | None = None,
        ident: str | None = None,
        *,
        limits: Limits | None = None,
    ) -> None:
        """Describe the folder.

        Args:
            root: the folder on the agent's machine.
            exclude: names or relative paths to leave out; nobody sees what changes there.
            extra: an async function whose values are kept in the same snapshot.
            ident: the snapshot's key, by default made of the root.
            limits: what the folder may be at most.
        """
        super().__init__(self._take, ident or f"workspace_{root}")
        self.root = root
        self.limits = replace(limits or Limits(), exclude=tuple(exclude))
        self._extra = extra

    async def _take(self) -> dict[str, Any]:
        try:
            tree = await capture(_agent_machine(), self.root, self.limits)
        except CaptureFailed as failure:
            raise EnvironmentNotReady(f"no baseline of {self.root}: {failure}") from failure
        token = secrets.token_hex(16)
        _keep_while_sample_lives(token, tree)
        more = {} if self._extra is None else dict(await self._extra())
        return {**more, "manifest": tree.manifest(), "token": token}

    async def get_diff(
        self, sandbox: SandboxEnvironment | None = None, *, max_bytes: int = 8 * 2**20
    ) -> WorkspaceDiff:
        """What changed since the baseline was taken.

        Args:
            sandbox: the machine, by default the agent's of the current sample.
            max_bytes: most bytes of the unified diff; head and tail are kept.

        Raises:
            EnvironmentNotReady: no baseline was taken in this sample.
        """
        baseline = self.get()
        if "manifest" not in baseline:
            raise EnvironmentNotReady(f"no baseline of {self.root} was taken in this sample")
        try:
            after = await capture(sandbox or _agent_machine(), self.root, self.limits)
        except CaptureFailed as failure:
            return WorkspaceDiff(capture_failed=True, error=str(failure))
        kept = _trees.get(str(baseline.get("token")))
        before = kept or tree_of_manifest(cast(Mapping[str, str], baseline["manifest"]))
        try:
            return await diff_trees(before, after, self.limits, max_bytes=max_bytes)
        except CaptureFailed as failure:
            return WorkspaceDiff(capture_failed=True, error=str(failure))
        finally:
            after.close()
            if kept is None:
                before.close()


async def diff_trees(
    before: Tree, after: Tree, limits: Limits | None = None, *, max_bytes: int = 8 * 2**20
) -> WorkspaceDiff:
    """Compare two trees in a bounded child process.

    Raises:
        CaptureFailed: a limit ended it.
    """
    limits = limits or Limits()
    with tempfile.TemporaryDirectory(prefix="ct-diff-") as scratch:
        given = json.dumps({"diff_bytes": _SPOOL_BYTES})
        arguments = [str(before.folder), str(after.folder), scratch, given]
        await run_bounded("compare_child.py", arguments, limits)
        return await anyio.to_thread.run_sync(_read_diff, Path(scratch), max_bytes)


def _read_diff(folder: Path, max_bytes: int) -> WorkspaceDiff:
    changes = cast(dict[str, list[str]], json.loads((folder / "changes.json").read_text(encoding="utf-8")))
    with (folder / "unified.diff").open("rb") as file:
        total = (folder / "unified.diff").stat().st_size
        if total <= max_bytes:
            text = file.read().decode("utf-8", "replace")
        else:
            head = file.read(max_bytes // 2)
            file.seek(total - max_bytes // 2)
            tail = file.read()
            text = (
                head.decode("utf-8", "ignore")
                + f"\n... {total - len(head) - len(tail)} bytes are left out ...\n"
                + tail.decode("utf-8", "ignore")
            )
    return WorkspaceDiff(
        added=tuple(changes["added"]),
        removed=tuple(changes["removed"]),
        modified=tuple(changes["modified"]),
        unified=text,
        total_bytes=total,
        truncated=total > max_bytes,
    )


@dataclass(frozen=True)
class FinalDiffRecord:
    """The metadata of a `workspace_diff` Score, with the value that goes with it."""

    diff: str
    stat: str
    workspace_dir: str
    total_bytes: int
    truncated: bool
    error: str | None
    baseline: str = "workspace_baseline"
    changed: int | None = None
    """How many paths changed; None when the folder could not be captured."""

    @property
    def metadata(self) -> dict[str, Any]:
        """What the Score's metadata holds."""
        fields = asdict(self)
        del fields["changed"]
        return fields


class FinalDiffCapture:
    """The final diff of a main task: `start` before the agent acts, `finish` before anything is scored."""

    def __init__(self, task: MainTask, env_id: str) -> None:
        """Prepare it for a task that declares one.

        Raises:
            ValueError: the task declares none.
        """
        if task.final_diff is None:
            raise ValueError(f"main task '{task.id}' declares no final diff")
        self.declared = task.final_diff
        ident = plain_ident(f"{env_id}.{task.id}.final_diff") + plain_ident(
            f".workspace_{self.declared.root.lstrip('/')}"
        )
        self._baseline = WorkspaceBaseline(self.declared.root, self.declared.exclude, ident=ident)

    async def start(self) -> None:
        """Remember the folder in the current sample.

        Raises:
            EnvironmentNotReady: it cannot be captured.
        """
        await self._baseline.capture()

    async def finish(self, sandbox: SandboxEnvironment | None = None) -> FinalDiffRecord:
        """What changed since; never raises for anything that the agent could have caused."""
        most = self.declared.max_bytes
        diff = await self._baseline.get_diff(sandbox, max_bytes=most)
        return FinalDiffRecord(
            diff=diff.unified,
            stat=diff.stat,
            workspace_dir=self.declared.root,
            total_bytes=diff.total_bytes,
            truncated=diff.truncated,
            error=None if diff.error is None else _cut(diff.error, most),
            changed=None if diff.capture_failed else len(diff.changed),
        )


def _cut(text: str, max_bytes: int) -> str:
    return text.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")


def _agent_machine() -> SandboxEnvironment:
    from inspect_ai.util import sandbox

    return sandbox()


def _keep_while_sample_lives(token: str, tree: Tree) -> None:
    from inspect_ai.util import store

    def forget() -> None:
        _trees.pop(token, None)
        tree.close()

    _trees[token] = tree
    weakref.finalize(store(), forget)
