"""The trusted process of each machine: it starts commands and touches files there, as the host asks.

The host sends this text to a fresh interpreter (see `machine.py`), so it uses the standard library only and
has everything imported before the first command runs: what happens inside later cannot change it. Under
bubblewrap it is process 1, which nothing inside can kill, stop or trace. It touches files itself; a command
is started by a fork that watches it. No program of the machine is run but those that the host names.
"""

# Paths are bytes here, which pathlib does not take.
# ruff: noqa: PTH101, PTH103, PTH112, PTH115, PTH116, PTH118, PTH120, PTH123, PTH208, PTH211

from __future__ import annotations

import ctypes
import errno
import os
import resource
import select
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
CHUNK = 1 << 18
KILL_SECONDS = 2.5
HOST_SECONDS = 60.0
DEEPEST_TREE = 10_000
IS_LINUX = sys.platform == "linux"
GROUPS = os.pipe()


class Limits:
    """What every command gets: `cgroups` are open `cgroup.procs` files; numbers below 0 mean no limit."""

    def __init__(self, processes: int, data_bytes: int, cgroups: list[int]) -> None:
        self.processes = processes
        self.data_bytes = data_bytes
        self.cgroups = cgroups


def main() -> None:
    """Serve the host on the socket that is standard input until it is closed."""
    harden()
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    limits = Limits(-1, -1, [])
    while True:
        kind, fds = receive_request(control)
        if not kind:
            break
        if kind == b"C":
            limits = configure(fds)
        elif kind == b"K":
            kill_everything()
        elif kind == b"F":
            serve_files(fds[0])
        elif kind == b"R":
            run_in_fork(control, fds, limits)
        reap()
    kill_everything()


def harden() -> None:
    """No signal handler, no tracing by others, orphans come to us, and deep folders do not end us."""
    sys.setrecursionlimit(DEEPEST_TREE)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if IS_LINUX:
        prctl(PR_SET_DUMPABLE, 0)
        prctl(PR_SET_CHILD_SUBREAPER, 1)


def prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def receive_request(control: socket.socket) -> tuple[bytes, list[int]]:
    """One byte and the files that came with it; zombies are reaped while nothing comes."""
    poller = select.poll()
    poller.register(control, select.POLLIN)
    while not poller.poll(1000):
        reap()
    data, ancillary, _flags, _address = control.recvmsg(1, socket.CMSG_SPACE(16 * 4))
    fds: list[int] = []
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            count = len(payload) // 4
            fds.extend(struct.unpack(f"{count}i", payload[: count * 4]))
    for fd in fds:
        os.set_inheritable(fd, False)
    return data, fds


def reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def configure(fds: list[int]) -> Limits:
    """The first request: limits and their cgroup files; the answer says that this process is ready."""
    with socket.socket(fileno=fds[0]) as channel:
        processes, data_bytes = receive(channel)
        send(channel, b"ready")
    return Limits(int(processes), int(data_bytes), fds[1:])


def run_in_fork(control: socket.socket, fds: list[int], limits: Limits) -> None:
    try:
        pid = os.fork()
    except OSError:
        pid = -1
    if pid == 0:
        try:
            control.close()
            if IS_LINUX:
                prctl(PR_SET_CHILD_SUBREAPER, 1)
            os.setsid()
            channel = socket.socket(fileno=fds[0])
            run_command(channel, fds[1:], receive(channel), limits)
        except BaseException:  # noqa: BLE001 (a fork must never return into the loop above)
            os._exit(1)
        os._exit(0)
    for fd in fds:
        os.close(fd)


def serve_files(fd: int) -> None:
    """Do what one request says and answer on its channel: `ok ...`, or `error <errno>`."""
    with socket.socket(fileno=fd) as channel:
        channel.settimeout(HOST_SECONDS)
        try:
            serve_request(channel, receive(channel))
        except OSError as failure:
            with suppress(OSError):
                send(channel, b"error", str(failure.errno or errno.EIO).encode())
        except Exception:  # noqa: BLE001 (whatever a file tree does, the machine goes on)
            return


def serve_request(channel: socket.socket, fields: list[bytes]) -> None:
    if fields[0] == b"read":
        read_file(channel, fields[1], int(fields[2]))
    elif fields[0] == b"write":
        write_file(fields[1], fields[2], 0o666)
        send(channel, b"ok")
    elif fields[0] == b"populate":
        populate(fields[1:])
        send(channel, b"ok")
    elif fields[0] == b"archive":
        archive(channel, fields[1])


def receive(channel: socket.socket) -> list[bytes]:
    """One message: a list of byte strings, each with its length before it."""
    size, count = struct.unpack(">QI", receive_exactly(channel, 12))
    body = receive_exactly(channel, size)
    fields: list[bytes] = []
    at = 0
    for _ in range(count):
        (length,) = struct.unpack_from(">Q", body, at)
        fields.append(body[at + 8 : at + 8 + length])
        at += 8 + length
    return fields


def receive_exactly(channel: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    done = 0
    while done < size:
        count = channel.recv_into(view[done:])
        if not count:
            raise OSError(errno.ECONNRESET, "the host is gone")
        done += count
    return bytes(data)


def send(channel: socket.socket, *fields: bytes) -> None:
    body = b"".join(struct.pack(">Q", len(field)) + field for field in fields)
    channel.sendall(struct.pack(">QI", len(body), len(fields)) + body)


def run_command(channel: socket.socket, streams: list[int], fields: list[bytes], limits: Limits) -> None:
    """Run one command to its end, or end it with all its descendants when the host closes its side."""
    cwd, variables = fields[0], int(fields[1])
    env = dict(field.split(b"=", 1) for field in fields[2 : 2 + variables])
    argv = fields[2 + variables :]
    failed, failure = os.pipe()
    pid = os.fork()
    if pid == 0:
        become_command(streams, failure, cwd, env, argv, limits)
    if not IS_LINUX:
        os.write(GROUPS[1], struct.pack("i", pid))
    os.close(failure)
    for fd in streams:
        os.close(fd)
    trouble = os.read(failed, 64)
    os.close(failed)
    if trouble:
        os.waitpid(pid, 0)
        send(channel, b"failed", *trouble.split())
        return
    code = wait_for(channel, pid)
    if code is None:
        kill_descendants(pid)
        send(channel, b"killed")
    else:
        send(channel, b"exit", str(code).encode())


def become_command(
    streams: list[int],
    failure: int,
    cwd: bytes,
    env: dict[bytes, bytes],
    argv: list[bytes],
    limits: Limits,
) -> None:
    """In the new process: its own session, standard streams, limits; then the command, or its errno."""
    step = b"start"
    try:
        os.setsid()
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
        for fd in limits.cgroups:
            os.write(fd, b"0")
        set_rlimits(limits)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if hasattr(signal, "SIGXFSZ"):
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        step = b"cwd"
        os.chdir(cwd)
        step = b"exec"
        execute(argv, env)
    except OSError as trouble:
        os.write(failure, step + b" " + str(trouble.errno or errno.EIO).encode())
    except BaseException:  # noqa: BLE001 (a fork must never return)
        os.write(failure, step + b" " + str(errno.EINVAL).encode())
    finally:
        os._exit(127)


def execute(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    """Become the command, found on the PATH of its own environment; returns only by an OSError."""
    if b"/" in argv[0]:
        os.execve(argv[0], argv, env)
    trouble = errno.ENOENT
    for folder in env.get(b"PATH", b"/usr/bin:/bin").split(b":"):
        try:
            os.execve(os.path.join(folder or b".", argv[0]), argv, env)
        except OSError as failure:
            if failure.errno not in (errno.ENOENT, errno.ENOTDIR):
                trouble = failure.errno or errno.EIO
    raise OSError(trouble, "")


def set_rlimits(limits: Limits) -> None:
    if IS_LINUX:
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    if limits.processes >= 0:
        resource.setrlimit(resource.RLIMIT_NPROC, (limits.processes, limits.processes))
    if limits.data_bytes >= 0:
        resource.setrlimit(resource.RLIMIT_DATA, (limits.data_bytes, limits.data_bytes))


def wait_for(channel: socket.socket, pid: int) -> int | None:
    """The command's exit code (128 + signal), or None when the host closed its side first."""
    poller = select.poll()
    poller.register(channel, select.POLLIN)
    try:
        process = os.pidfd_open(pid)
        poller.register(process, select.POLLIN)
        pause = 500
    except (AttributeError, OSError):
        pause = 10
    while True:
        ready = poller.poll(pause)
        try:
            while True:
                done, status = os.waitpid(-1, os.WNOHANG)
                if done == pid:
                    code = os.waitstatus_to_exitcode(status)
                    return code if code >= 0 else 128 - code
                if not done:
                    break
        except ChildProcessError:
            return 255
        if any(fd == channel.fileno() for fd, _event in ready):
            return None


def kill_descendants(group: int) -> None:
    """End every descendant of this process: stop them all first, so that none can start another."""
    stopped: set[int] = set()
    deadline = time.monotonic() + KILL_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL if not IS_LINUX else signal.SIGSTOP)
        found = descendants(os.getpid())
        new = found - stopped
        for pid in new:
            send_signal(pid, signal.SIGSTOP)
        stopped |= new
        if new and len(stopped) < 10_000:
            continue
        if not found:
            break
        for pid in found:
            send_signal(pid, signal.SIGKILL)
        reap()
        time.sleep(0.002)
    reap()


def send_signal(pid: int, number: int) -> None:
    with suppress(OSError):
        os.kill(pid, number)


def descendants(root: int) -> set[int]:
    """Living processes below `root`, from /proc; empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return set()
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state not in b"ZX":
            children.setdefault(int(parent), []).append(int(name))
    found: set[int] = set()
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting.extend(below)
    return found


def kill_everything() -> None:
    """End all processes of this machine but this one."""
    if os.getpid() == 1:
        send_signal(-1, signal.SIGKILL)
        reap()
    else:
        for pid in descendants(os.getpid()):
            send_signal(pid, signal.SIGKILL)
        kill_descendants(0x7FFFFFFF)
        os.set_blocking(GROUPS[0], False)
        with suppress(OSError):
            while group := os.read(GROUPS[0], 4):
                os.killpg(struct.unpack("i", group)[0], signal.SIGKILL)


def read_file(channel: socket.socket, path: bytes, limit: int) -> None:
    """Send a regular file's bytes; never waits on a FIFO or device, never more than `limit` bytes."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        require_regular(fd)
        chunks: list[bytes] = []
        size = 0
        while size <= limit:
            chunk = os.read(fd, CHUNK)
            if not chunk:
                send(channel, b"ok", b"".join(chunks))
                return
            chunks.append(chunk)
            size += len(chunk)
        send(channel, b"large")
    finally:
        os.close(fd)


def require_regular(fd: int) -> None:
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, "")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "")


def write_file(path: bytes, content: bytes, mode: int) -> None:
    """Replace a regular file's content, with its parent folders; never waits on a FIFO or device."""
    parent = os.path.dirname(path)
    if parent:
        os.makedirs(parent, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY
    fd = os.open(path, flags, mode)
    try:
        require_regular(fd)
        if IS_LINUX and os.fstat(fd).st_dev == os.stat("/proc").st_dev:
            raise OSError(errno.EINVAL, "")
        os.ftruncate(fd, 0)
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view[:CHUNK]) :]
    finally:
        os.close(fd)


def populate(fields: list[bytes]) -> None:
    """Make folders, files and links; four fields each: `d`, `f` or `l`, path, octal mode, content."""
    for kind, path, mode, content in zip(*[iter(fields)] * 4, strict=True):
        if kind == b"d":
            os.makedirs(path, exist_ok=True)
        elif kind == b"l":
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(content, path)
        else:
            write_file(path, content, 0o600)
        if kind != b"l":
            os.chmod(path, int(mode, 8))


def archive(channel: socket.socket, root: bytes) -> None:
    """Send a folder's entries below its name: kind, path, mode, size; then a file's bytes in chunks."""
    if not os.path.isdir(root):
        raise OSError(errno.ENOENT, "")
    send_folder(channel, root, b"")
    send(channel, b"end")


def send_folder(channel: socket.socket, folder: bytes, name: bytes) -> None:
    with lent_access(folder, 0o500):
        for entry in sorted(os.listdir(folder)):
            with suppress(FileNotFoundError):
                send_entry(channel, folder + b"/" + entry, name + b"/" + entry if name else entry)


def send_entry(channel: socket.socket, path: bytes, below: bytes) -> None:
    info = os.lstat(path)
    mode = oct(stat.S_IMODE(info.st_mode))[2:].encode()
    if stat.S_ISDIR(info.st_mode):
        send(channel, b"d", below, mode, b"0")
        send_folder(channel, path, below)
    elif stat.S_ISLNK(info.st_mode):
        send(channel, b"l", below, mode, os.readlink(path))
    elif stat.S_ISREG(info.st_mode):
        send_content(channel, path, below, mode)
    elif stat.S_ISFIFO(info.st_mode):
        send(channel, b"p", below, mode, b"0")


def send_content(channel: socket.socket, path: bytes, below: bytes, mode: bytes) -> None:
    """Exactly as many bytes as announced, whatever happens to the file meanwhile."""
    with lent_access(path, 0o400):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY)
    try:
        require_regular(fd)
        left = os.fstat(fd).st_size
        send(channel, b"f", below, mode, str(left).encode())
        while left:
            chunk = os.read(fd, min(left, CHUNK)) or bytes(min(left, CHUNK))
            channel.sendall(chunk)
            left -= len(chunk)
    finally:
        os.close(fd)


@contextmanager
def lent_access(path: bytes, bits: int) -> Generator[None]:
    """Where a mode forbids its owner the access, the bits are lent for the moment."""
    mode = stat.S_IMODE(os.lstat(path).st_mode)
    if mode & bits == bits:
        yield
        return
    os.chmod(path, mode | bits)
    try:
        yield
    finally:
        os.chmod(path, mode)


if __name__ == "__main__":
    main()
