"""The host's end of one machine: runs commands and moves files through its trusted inside process."""

from __future__ import annotations

import errno
import marshal
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import anyio
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
)

from control_tower import config as configuration
from control_tower.errors import StateError, ValidationError
from control_tower.sandbox.streams import Output, Tail, feed
from control_tower.sandbox.wire import Channel, receive_tar

# Compiled here once, not in every machine: the inside interpreter is the one that runs this.
PROGRAM = marshal.dumps(
    compile(resources.files("control_tower.sandbox").joinpath("inside.py").read_bytes(), "inside.py", "exec")
)
BOOTSTRAP = f"import marshal, os; exec(marshal.loads(os.read(0, {len(PROGRAM)})))"
"""What the inside interpreter is started with: it takes its program from standard input."""

_FALLBACK_TIMEOUT = 1200
_FILE_TIMEOUT = 180
_KILL_GRACE = 3.5
_START_TIMEOUT = 30.0
_SMALL = 1 << 12


def fallback_timeout() -> int:
    """Seconds that a command without a timeout of its own may take.

    Raises:
        ValidationError: the configured value is not a positive whole number.
    """
    text = configuration.get("fallback_exec_timeout", str(_FALLBACK_TIMEOUT)) or ""
    if not text.isdecimal() or int(text) < 1:
        raise ValidationError(f"fallback_exec_timeout is {text!r}, not a positive number of seconds")
    return int(text)


@dataclass(frozen=True)
class Entry:
    """One thing to make inside: kind `d` (folder), `f` (file) or `l` (link), with its mode."""

    kind: str
    path: str
    mode: int = 0o755
    content: bytes = b""


@dataclass(frozen=True)
class CommandLimits:
    """Limits of each command; `cgroup_files` are open `cgroup.procs` files that commands join."""

    processes: int | None = None
    data_bytes: int | None = None
    cgroup_files: tuple[int, ...] = ()


class Machine:
    """A running machine; several tasks may use it at once."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self.name = name
        self.process = process
        self._control = control
        self._sending = anyio.Lock()

    @classmethod
    def spawn(cls, name: str, command: Sequence[str], *, pass_fds: Sequence[int] = ()) -> Machine:
        """Start `command`, which ends in an interpreter with `BOOTSTRAP`; not ready before `configure`.

        The calling thread must outlive the machine: its end can be the signal to die.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * len(PROGRAM))
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * len(PROGRAM))
        ours.sendall(PROGRAM)
        ours.setblocking(False)
        try:
            process = subprocess.Popen(
                list(command),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={},
                cwd="/",
                pass_fds=pass_fds,
                start_new_session=True,
            )
        except OSError as failure:
            ours.close()
            raise StateError(f"cannot start {command[0]}: {failure.strerror}") from failure
        finally:
            theirs.close()
        return cls(name, process, ours)

    async def configure(self, limits: CommandLimits) -> None:
        """Wait until the inside process serves.

        Raises:
            StateError: it did not start; the message has what it printed.
        """
        fields = [
            str(-1 if number is None else number).encode() for number in (limits.processes, limits.data_bytes)
        ]
        answer: list[bytes] | None = None
        with anyio.move_on_after(_START_TIMEOUT), suppress(OSError, SandboxUnavailableError):
            answer = await self._ask(b"C", limits.cgroup_files, fields, _SMALL)
        if answer != [b"ready"]:
            raise StateError(f"sandbox '{self.name}' did not start: {self._startup_output()}")

    def _startup_output(self) -> str:
        stream = self.process.stderr
        assert stream is not None
        os.set_blocking(stream.fileno(), False)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(0.5)
        text = (stream.read() or b"").decode(errors="replace").strip()
        return text or f"its process ended with {self.process.poll()}"

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: bytes | None = None,
        timeout: float | None = None,
    ) -> ExecResult[str]:
        """Run one command; processes that it leaves in the background go on after it.

        Args:
            argv: the command, looked up on the PATH of `env`.
            cwd: folder as the machine sees it.
            env: the whole environment.
            stdin: what it reads; nothing when None.
            timeout: seconds; None for that of `fallback_timeout`.

        Returns:
            Exit code (128 + signal), and the last bytes of each stream up to Inspect's limit.

        Raises:
            TimeoutError: it took too long; it and all its descendants were ended.
            PermissionError: the file is not executable.
            SandboxUnavailableError: the machine is gone.
        """
        seconds = timeout if timeout is not None else fallback_timeout()
        running, theirs = _Running.open(argv, with_stdin=stdin is not None)
        answer: list[bytes] | None = None
        try:
            with anyio.move_on_after(seconds) as waiting:
                await self._start(running, theirs, argv, cwd, env)
                async with anyio.create_task_group() as group:
                    running.follow(group, stdin)
                    answer = await running.channel.receive(_SMALL)
                    group.cancel_scope.cancel()
            if waiting.cancelled_caught and answer is None:
                await self._kill(running)
                raise TimeoutError(f"the command took longer than {seconds} seconds")
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._kill(running)
            raise
        finally:
            stdout, stderr = running.finish()
        return await self._result(argv[0], cwd, answer, stdout, stderr)

    async def _result(
        self, program: str, cwd: str, answer: list[bytes] | None, stdout: str, stderr: str
    ) -> ExecResult[str]:
        match answer:
            case [b"exit", code]:
                return ExecResult(int(code) == 0, int(code), stdout, stderr)
            case [b"failed", b"exec", code] if int(code) in (errno.EACCES, errno.EPERM):
                raise PermissionError(int(code), f"cannot execute in sandbox '{self.name}'", program)
            case [b"failed", b"exec", code]:
                return ExecResult(False, 127, "", f"{program}: {os.strerror(int(code))}\n")
            case [b"failed", b"cwd", code]:
                return ExecResult(False, 126, "", f"cannot change to {cwd}: {os.strerror(int(code))}\n")
            case [b"failed", _, code]:
                return ExecResult(False, 126, "", f"cannot start {program}: {os.strerror(int(code))}\n")
            case _:
                await self._require_alive()
                return ExecResult(False, 137, stdout, f"{stderr}Killed\n")

    async def start(self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str]) -> Background:
        """Start a command that runs until the machine ends, with its last output kept."""
        running, theirs = _Running.open(argv, with_stdin=False)
        await self._start(running, theirs, argv, cwd, env)
        return Background(running)

    async def read_file(self, path: str, limit: int) -> bytes:
        """A regular file's bytes.

        Raises:
            FileNotFoundError, IsADirectoryError, PermissionError, OSError: as the machine's system says;
                EINVAL for FIFOs, sockets and devices.
            OutputLimitExceededError: it has more than `limit` bytes.
        """
        answer = await self._file_request([b"read", os.fsencode(path), str(limit).encode()], path, limit)
        if answer == [b"large"]:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return answer[1]

    async def write_file(self, path: str, content: bytes) -> None:
        """Replace a file's content; missing parent folders are made. Raises like `read_file`."""
        await self._file_request([b"write", os.fsencode(path), content], path, 0)

    async def populate(self, entries: Sequence[Entry]) -> None:
        """Make folders, files and links in the order given; files that are there are replaced."""
        fields = [b"populate"]
        for entry in entries:
            fields += [
                entry.kind.encode(),
                os.fsencode(entry.path),
                f"{entry.mode:o}".encode(),
                entry.content,
            ]
        await self._file_request(fields, self.name, 0)

    async def _file_request(self, fields: list[bytes], path: str, limit: int) -> list[bytes]:
        with anyio.fail_after(_FILE_TIMEOUT):
            answer = await self._ask(b"F", (), fields, limit + _SMALL)
        if answer is None:
            await self._require_alive()
            raise OSError(errno.EIO, "the request was ended inside the sandbox", path)
        if answer[0] == b"error":
            number = int(answer[1])
            raise OSError(number, f"{os.strerror(number)}.", path)
        return answer

    async def archive(self, path: str, destination: Path, *, max_bytes: int, timeout: float) -> None:
        """Write a tar of a folder, read by the inside process itself, to a file of the host.

        Raises:
            FileNotFoundError: `path` is no folder.
            TimeoutError: it took more than `timeout` seconds.
            OverflowError: the tar has more than `max_bytes`.
        """
        channel, theirs = Channel.pair()
        try:
            with anyio.fail_after(timeout), destination.open("wb") as file:
                await self._request(b"F", [theirs])
                await channel.send([b"archive", os.fsencode(path)])
                trouble = await receive_tar(channel, file, max_bytes)
        finally:
            channel.close()
        if trouble is not None:
            raise OSError(trouble, f"{os.strerror(trouble)}.", path)

    def stop(self) -> None:
        """Ask the machine to end with everything in it; `wait_stopped` waits for that."""
        self._control.close()

    def wait_stopped(self) -> None:
        """Wait until nothing of the machine runs; for seconds at most."""
        try:
            self.process.wait(_KILL_GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(_KILL_GRACE)
        if self.process.stderr is not None:
            self.process.stderr.close()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    async def _require_alive(self) -> None:
        for _ in range(20):
            if not self.alive:
                break
            await anyio.sleep(0.01)
        else:
            return
        raise SandboxUnavailableError(f"sandbox '{self.name}' is not running")

    async def _start(
        self,
        running: _Running,
        theirs: Sequence[int],
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
    ) -> None:
        fields = [os.fsencode(cwd), str(len(env)).encode()]
        fields += [os.fsencode(f"{key}={value}") for key, value in env.items()]
        fields += [os.fsencode(argument) for argument in argv]
        try:
            await self._request(b"R", theirs)
            await running.channel.send(fields)
        except OSError as failure:
            raise SandboxUnavailableError(f"sandbox '{self.name}' does not answer") from failure

    async def _kill(self, running: _Running) -> None:
        """End a command with its descendants; everything when they resist; the machine when all fails."""
        running.channel.hang_up()
        for attempt in range(2):
            with anyio.move_on_after(_KILL_GRACE):
                await running.channel.receive(_SMALL)
                return
            if attempt == 0:
                with suppress(SandboxUnavailableError):
                    await self._request(b"K", [])
        self.process.kill()

    async def _ask(
        self, kind: bytes, extra: Sequence[int], fields: list[bytes], limit: int
    ) -> list[bytes] | None:
        channel, theirs = Channel.pair()
        try:
            await self._request(kind, [theirs], extra)
            await channel.send(fields)
            return await channel.receive(limit)
        except (BrokenPipeError, ConnectionResetError):
            return None
        finally:
            channel.close()

    async def _request(self, kind: bytes, theirs: Sequence[int], extra: Sequence[int] = ()) -> None:
        """Hand the ends of a request over; `theirs` are closed here, `extra` stay open."""
        try:
            async with self._sending:
                while True:
                    try:
                        socket.send_fds(self._control, [kind], [*theirs, *extra])
                        return
                    except BlockingIOError:
                        await anyio.wait_writable(self._control)
                    except OSError as failure:
                        raise SandboxUnavailableError(f"sandbox '{self.name}' is not running") from failure
        finally:
            for fd in theirs:
                os.close(fd)


@dataclass
class _Running:
    """The host's ends of one command."""

    channel: Channel
    stdin: int | None
    stdout: Output
    stderr: Output

    @classmethod
    def open(cls, argv: Sequence[str], *, with_stdin: bool) -> tuple[_Running, list[int]]:
        """The ends here, and those to hand over: channel, standard input, output, error."""
        if not argv:
            raise ValueError("the command is empty")
        channel, theirs = Channel.pair()
        if with_stdin:
            their_stdin, stdin = os.pipe()
        else:
            their_stdin, stdin = os.open(os.devnull, os.O_RDONLY), None
        stdout, their_stdout = os.pipe()
        stderr, their_stderr = os.pipe()
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        running = cls(channel, stdin, Output(stdout, limit), Output(stderr, limit))
        return running, [theirs, their_stdin, their_stdout, their_stderr]

    def follow(self, group: anyio.abc.TaskGroup, stdin: bytes | None) -> None:
        if self.stdin is not None:
            group.start_soon(feed, self.stdin, stdin or b"")
            self.stdin = None
        group.start_soon(self.stdout.follow)
        group.start_soon(self.stderr.follow)

    def finish(self) -> tuple[str, str]:
        """The output so far; the channel's end tells the inside process to end the command if it runs."""
        self.channel.close()
        if self.stdin is not None:
            os.close(self.stdin)
        return self.stdout.finish(), self.stderr.finish()


class Background:
    """A command that runs beside all others until its machine ends."""

    def __init__(self, running: _Running) -> None:
        self._running = running
        self._tail = Tail(_SMALL)
        running.stdout.hand_over(self._tail.add)
        running.stderr.hand_over(self._tail.add)

    @property
    def ended(self) -> bool:
        return self._running.channel.poll()

    def output(self) -> str:
        """The end of what it printed."""
        return self._tail.text().strip()

    def close(self) -> None:
        self._running.channel.close()
