"""What a bubblewrap machine sees: the host's /usr read-only, and small writable folders of its own."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath

from control_tower.errors import ValidationError
from control_tower.sandbox.compose import Service
from control_tower.sandbox.interpreter import Interpreter
from control_tower.sandbox.machine import Entry

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HOME = "/root"
MAX_COPY_BYTES = 256 << 20
_SHARED_MEMORY = 64 << 20
_LINKED_TO_USR = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_HIDDEN_IN_PROC = ("cmdline", "kcore", "keys", "kmsg", "sched_debug", "timer_list")
_FROM_ETC = ("ld.so.cache", "alternatives", "protocols", "services")


def base_environment() -> dict[str, str]:
    """What every command gets beside its service's own variables; nothing of the host's."""
    return {"PATH": PATH, "HOME": HOME, "LANG": "C.UTF-8", "USER": "root", "LOGNAME": "root"}


def system_arguments(interpreter: Interpreter) -> list[str]:
    """bwrap arguments that show the host's programs and libraries, but not /usr/local."""
    arguments = ["--perms", "0755", "--dir", "/usr"]
    shown = [path for path in sorted(Path("/usr").iterdir()) if path.name != "local"]
    for path in [*shown, *(Path("/", name) for name in _LINKED_TO_USR)]:
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    if interpreter.folder is not None:
        arguments += [*parents(interpreter.folder), "--ro-bind", interpreter.folder, interpreter.folder]
    arguments += ["--dir", "/etc"]
    for name in _FROM_ETC:
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return arguments


def machine_arguments(interpreter: Interpreter, disk_bytes: int) -> list[str]:
    """bwrap arguments for a machine's whole file system, of at most `disk_bytes` of its own.

    Packages installed on the host are hidden: a sample is the same on every machine, and each python3 in it
    starts without them.
    """
    hidden = [path for name in _HIDDEN_IN_PROC if (path := Path("/proc", name)).exists()]
    return [
        *("--size", str(disk_bytes), "--tmpfs", "/"),
        *system_arguments(interpreter),
        *(word for path in interpreter.packages for word in ("--tmpfs", path, "--remount-ro", path)),
        *("--proc", "/proc", "--dev", "/dev"),
        *("--perms", "1777", "--size", str(min(_SHARED_MEMORY, disk_bytes)), "--tmpfs", "/dev/shm"),
        *("--remount-ro", "/dev"),
        *(argument for path in hidden for argument in ("--ro-bind", "/dev/null", str(path))),
    ]


def parents(path: str) -> list[str]:
    """bwrap arguments that make a path's parent folders passable for everyone."""
    folders = [str(folder) for folder in PurePosixPath(path).parents][-2::-1]
    return [argument for folder in folders for argument in ("--perms", "0755", "--dir", folder)]


def machine_entries(service: Service, neighbours: Iterable[str], interpreter: Interpreter) -> list[Entry]:
    """The files of a new machine: /etc, the usual folders, python3 on the PATH, the service's copies."""
    hosts = "127.0.0.1 localhost\n::1 localhost\n" + "".join(f"127.0.0.1 {name}\n" for name in neighbours)
    etc = {
        "passwd": f"root:x:0:0:root:{HOME}:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
        "group": "root:x:0:\nnogroup:x:65534:\n",
        "hosts": hosts,
        "hostname": f"{service.name}\n",
        "resolv.conf": "",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
    }
    folders = {HOME: 0o700, "/tmp": 0o1777, "/var/tmp": 0o1777, "/var/log": 0o755, "/run": 0o755}
    entries = [Entry("f", f"/etc/{name}", 0o644, text.encode()) for name, text in etc.items()]
    entries += [Entry("d", path, mode) for path, mode in folders.items()]
    entries += [Entry("d", f"/usr/local/{name}") for name in ("bin", "sbin", "lib", "etc", "share")]
    entries += [
        Entry("l", f"/usr/local/bin/{name}", content=interpreter.executable.encode())
        for name in interpreter.names
    ]
    return [*entries, *service_entries(service)]


def service_entries(service: Service) -> list[Entry]:
    """The service's copied files and its working folder."""
    entries = [entry for source, target in service.copies for entry in copy_entries(source, target)]
    return [*entries, Entry("d", service.working_dir)]


def copy_entries(source: Path, target: str) -> Sequence[Entry]:
    """A host file or folder as entries below `target`.

    Raises:
        ValidationError: it is missing, too large, or has something else than folders, files and links.
    """
    return _copy(str(source), target, _newest(source))


def _newest(source: Path) -> tuple[tuple[str, int, int], ...]:
    """A key that changes when the folder's content does."""
    if not source.exists():
        raise ValidationError(f"{source}: the compose file copies it, but it does not exist")
    paths = [source, *sorted(source.rglob("*"))] if source.is_dir() else [source]
    return tuple((str(path), info.st_mtime_ns, info.st_size) for path in paths if (info := path.lstat()))


@lru_cache(maxsize=64)
def _copy(source: str, target: str, key: tuple[tuple[str, int, int], ...]) -> Sequence[Entry]:
    total = sum(size for _path, _time, size in key)
    if total > MAX_COPY_BYTES:
        raise ValidationError(f"{source}: {total} bytes are too many to copy (at most {MAX_COPY_BYTES})")
    entries: list[Entry] = []
    for name, _time, _size in key:
        path = Path(name)
        if "__pycache__" in path.parts:
            continue
        inside = str(PurePosixPath(target) / path.relative_to(source).as_posix())
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            entries.append(Entry("l", inside, content=os.fsencode(path.readlink())))
        elif path.is_dir():
            entries.append(Entry("d", inside, mode | 0o700))
        elif path.is_file():
            entries.append(Entry("f", inside, mode | 0o600, path.read_bytes()))
        else:
            raise ValidationError(f"{path}: only folders, files and links can be copied into a sandbox")
    return entries
