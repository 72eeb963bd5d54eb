"""A shell for a person inside a running bubblewrap machine.

`python -m control_tower.sandbox.enter PID FOLDER`, where PID is its bubblewrap process. Namespaces are joined
and capabilities dropped before a program of the machine runs: the agent may have changed what it loads.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys
from pathlib import Path

from control_tower.sandbox.rootfs import base_environment

_NS_GET_USERNS = 0xB701
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63


def main(pid: int, folder: str) -> int:
    """Run a shell in the machine whose bubblewrap process is `pid`; returns its exit code."""
    join_namespaces(_inner_process(pid))
    child = os.fork()
    if child == 0:
        drop_capabilities()
        os.chdir(folder)
        os.execve("/bin/sh", ["sh", "-i"], {**base_environment(), "TERM": os.environ.get("TERM", "dumb")})
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def join_namespaces(pid: int) -> None:
    """Join all namespaces of a process, through the user namespaces that own them."""
    libc = ctypes.CDLL(None, use_errno=True)
    fds = {name: os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in _namespaces(pid)}
    network_owner = fcntl.ioctl(fds["net"], _NS_GET_USERNS)
    machine_owner = fcntl.ioctl(fds["mnt"], _NS_GET_USERNS)
    others = [fds[name] for name in ("ipc", "uts", "cgroup", "pid", "mnt") if name in fds]
    for fd in (network_owner, fds["net"], machine_owner, *others, fds["user"]):
        if libc.setns(fd, 0) != 0:
            raise OSError(ctypes.get_errno(), "cannot join the sandbox")
    os.setgid(0)
    os.setuid(0)


def _namespaces(pid: int) -> list[str]:
    return [
        path.name for path in Path(f"/proc/{pid}/ns").iterdir() if not path.name.endswith("_for_children")
    ]


def drop_capabilities() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(_LAST_CAPABILITY):
        libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if libc.capset(header, nothing) != 0 or libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot drop capabilities")


def _inner_process(pid: int) -> int:
    """Process 1 of the machine, the child of its bubblewrap process."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = path.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if parent == str(pid):
            return int(path.parent.name)
    raise ProcessLookupError(f"process {pid} is not a running sandbox")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
