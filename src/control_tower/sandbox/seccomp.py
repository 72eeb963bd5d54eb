"""A small system call filter: what a sandboxed command may not ask of the kernel, or do to process 1."""

from __future__ import annotations

import errno
import platform
import struct

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000 | errno.EPERM
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16

_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_PRLIMIT = {"x86_64": 302, "aarch64": 261}
_X32_CALLS = 0x40000000

# Keys (the host user's keyrings are inherited), bpf, perf counters, userfaultfd, io_uring, namespaces.
_DENIED = {
    "x86_64": (248, 249, 250, 321, 298, 323, 425, 426, 427, 272, 308),
    "aarch64": (217, 218, 219, 280, 241, 282, 425, 426, 427, 97, 268),
}


def filter_program(machine: str | None = None) -> bytes | None:
    """The filter as the kernel takes it, or None for a machine type whose call numbers are not known here.

    Denied calls fail with EPERM, as do calls of another architecture than the machine's own. `prlimit` is
    allowed on the caller only, so that nothing inside can starve process 1.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHES:
        return None
    denied = _DENIED[machine]
    fail = 10 + len(denied)
    lines = [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQUAL, 0, fail - 2, _ARCHES[machine]),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, fail - 4, 0, _X32_CALLS),
        (_JUMP_EQUAL, 0, 3, _PRLIMIT[machine]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_EQUAL, 0, fail - 7, 0),
        (_RETURN, 0, 0, _ALLOW),
        *((_JUMP_EQUAL, fail - 9 - at, 0, number) for at, number in enumerate(denied)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _FAIL),
    ]
    return b"".join(struct.pack("HBBI", *line) for line in lines)
