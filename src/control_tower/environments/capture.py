"""Taking a folder out of a sandbox whose owner may be hostile, and putting one into another sandbox."""

from __future__ import annotations

import posixpath
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from control_tower.environments.failures import CaptureFailed, EnvironmentNotReady
from control_tower.environments.tree import Limits, Tree, unpack

if TYPE_CHECKING:
    from inspect_ai.util import ExecResult, SandboxEnvironment

_PACK = """
PATH=/usr/bin:/bin:/usr/local/bin
ulimit -f "$2" 2>/dev/null
out=$1; shift 2
for tar in /usr/bin/tar /bin/tar /usr/local/bin/tar; do [ -x "$tar" ] && break; done
zip=; command -v gzip >/dev/null && zip=z
exec "$tar" "-c${zip}f" "$out" "$@" .
"""
_UNPACK = """
if [ "$2" = clean ]; then find . -mindepth 1 -maxdepth 1 ! -name "$1" -exec rm -rf {} +; fi
tar -xf "$1" && rm -f "$1"
"""


async def fetch_tree(
    sandbox: SandboxEnvironment,
    root: str,
    *,
    max_bytes: int = 64 * 2**20,
    max_entries: int = 20_000,
    exclude: Sequence[str] = (),
    symlinks: Literal["refuse", "keep"] = "refuse",
    timeout: int = 120,
) -> Tree:
    """A verified copy of a folder of a sandbox, taken as root.

    The sandbox's owner is taken for hostile: sizes, entries, time and memory are bounded, and nothing in
    the copy can name a place outside of it.

    Args:
        sandbox: where the folder is.
        root: the folder; relative to the sandbox's working directory, or absolute.
        max_bytes: all its files together.
        max_entries: files, folders and links together.
        exclude: names or relative paths to leave out.
        symlinks: whether a tree with symbolic links is refused.
        timeout: seconds for each step.

    Raises:
        CaptureFailed: for whatever the sandbox's owner may have caused; a scorer that lets it pass, or
            catches it, gives INCORRECT.
    """
    limits = Limits(
        content_bytes=max_bytes,
        stream_bytes=2 * max_bytes + 2**20,
        entries=max_entries,
        keep_bytes=max_bytes,
        seconds=timeout,
        exclude=exclude,
    )
    tree = await capture(sandbox, root, limits)
    if symlinks == "refuse":
        link = next((entry.path for entry in tree.entries.values() if entry.kind == "symlink"), None)
        if link is not None:
            tree.close()
            raise CaptureFailed(f"{root}: {link!r} is a symbolic link")
    return tree


async def put_tree(sandbox: SandboxEnvironment, tree: Tree, root: str, *, clean: bool = True) -> None:
    """Write a tree into a folder of a sandbox that the agent has no hand in.

    Args:
        sandbox: where to; it needs `sh`, `tar` and `find`.
        tree: what to write; special files are left out, and links that leave the tree.
        root: the folder, made when it is missing.
        clean: empty the folder first.

    Raises:
        EnvironmentNotReady: the sandbox does not take it.
    """
    name = f".ct-{secrets.token_hex(8)}.tar"
    await sandbox.write_file(posixpath.join(root, name), tree.to_tar())
    mode = "clean" if clean else "keep"
    result = await sandbox.exec(["sh", "-c", _UNPACK, "sh", name, mode], cwd=root, timeout=120)
    if not result.success:
        raise EnvironmentNotReady(f"{root}: the files could not be unpacked: {result.stderr[-300:]}")


async def capture(sandbox: SandboxEnvironment, root: str, limits: Limits) -> Tree:
    """A folder of a sandbox as a tree.

    Raises:
        CaptureFailed: as `fetch_tree`.
    """
    with tempfile.TemporaryDirectory(prefix="ct-archive-") as scratch:
        archive = Path(scratch) / "tree.tar"
        await _make_archive(sandbox, root, archive, limits)
        return await unpack(archive, limits)


async def _make_archive(sandbox: SandboxEnvironment, root: str, archive: Path, limits: Limits) -> None:
    from inspect_ai.util import LimitExceededError

    try:
        if not await _archive_by_provider(sandbox, root, archive, limits):
            await _archive_inside(sandbox, root, archive, limits)
    except (CaptureFailed, LimitExceededError):
        raise
    except Exception as error:
        raise CaptureFailed(f"{root} could not be read: {type(error).__name__}: {error}") from error


async def _archive_by_provider(sandbox: SandboxEnvironment, root: str, archive: Path, limits: Limits) -> bool:
    from control_tower.environments.runtime_vars import RuntimeVarsSandbox

    try:
        provider = sandbox.as_type(RuntimeVarsSandbox)
    except TypeError:
        return False
    return await provider.archive(root, archive, max_bytes=limits.stream_bytes, timeout=limits.seconds)


async def _archive_inside(sandbox: SandboxEnvironment, root: str, archive: Path, limits: Limits) -> None:
    """Run `tar` inside by absolute path. Root inside can replace it, and then lies about its own files."""
    inside = f"/tmp/.ct-{secrets.token_hex(16)}"
    blocks = str(limits.stream_bytes // 512 + 1)
    excludes = [f"--exclude={name}" for name in limits.exclude]
    command = ["/bin/sh", "-c", _PACK, "sh", inside, blocks, *excludes]
    try:
        result = await _exec_as_root(sandbox, command, root, limits.seconds)
        if result.returncode not in (0, 1):  # 1: a file changed while it was read
            raise CaptureFailed(f"{root}: tar ended with {result.returncode}: {result.stderr[-300:]}")
        archive.write_bytes(await sandbox.read_file(inside, text=False))
    finally:
        await _exec_as_root(sandbox, ["/bin/rm", "-f", inside], None, 30)


async def _exec_as_root(
    sandbox: SandboxEnvironment, command: list[str], cwd: str | None, timeout: int
) -> ExecResult[str]:
    from inspect_ai.util import SandboxUserUnsupportedError

    try:
        return await sandbox.exec(command, cwd=cwd, user="root", timeout=timeout, timeout_retry=False)
    except SandboxUserUnsupportedError:
        return await sandbox.exec(command, cwd=cwd, timeout=timeout, timeout_retry=False)
