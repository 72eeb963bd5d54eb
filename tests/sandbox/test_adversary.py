"""An agent attacks its bubblewrap machine: nothing hangs, escapes, lies to the host or is left behind."""

import os
import resource
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from inspect_ai.util import OutputLimitExceededError, SandboxEnvironment, SandboxUnavailableError

from control_tower.environments.runtime_vars import RuntimeVarsSandbox
from control_tower.sandbox.services import ServiceSandbox
from tests.sandbox.conftest import sample
from tests.sandbox.host import Leftovers, descendants, groups_of, is_running

Machines = dict[str, SandboxEnvironment]
pytestmark = pytest.mark.anyio
BOMB = """python3 -c '
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
' & """


async def python(machine: SandboxEnvironment, program: str, timeout: int = 30) -> str:
    result = await machine.exec(["python3", "-c", program], timeout=timeout)
    return (result.stdout + result.stderr).strip()


async def works(machine: SandboxEnvironment) -> bool:
    """The machine still runs commands and moves files."""
    with anyio.fail_after(30):
        await machine.write_file("/app/still.txt", "here")
        return (await machine.exec(["cat", "still.txt"], timeout=20)).stdout == "here"


async def test_a_flood_of_output_is_neither_kept_nor_waited_for(bwrap: Machines) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    flood = "head -c 1073741824 /dev/zero; head -c 100000000 /dev/zero >&2; echo end"
    result = await bwrap["default"].exec(["sh", "-c", flood], timeout=120)
    assert len(result.stdout) <= 10 * 1024**2 and result.stdout.endswith("end\n")
    assert len(result.stderr) <= 10 * 1024**2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, "kilobytes"
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        await bwrap["default"].exec(["yes"], timeout=1)
    assert time.monotonic() - started < 8
    assert await works(bwrap["default"])


async def test_a_fork_bomb_ends_with_its_command(bwrap: Machines) -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        await bwrap["default"].exec(["sh", "-c", BOMB + "exec sleep 60"], timeout=2)
    assert time.monotonic() - started < 20
    assert await works(bwrap["default"])
    listing = (await bwrap["default"].exec(["sh", "-c", "ls -d /proc/[0-9]* | wc -l"], timeout=20)).stdout
    assert int(listing) < 20


async def test_a_fork_bomb_in_the_background_neither_hangs_the_host_nor_survives(
    bwrap: Machines, nothing_left: Leftovers
) -> None:
    with anyio.fail_after(60):
        await bwrap["default"].exec(["sh", "-c", f"({BOMB}) >/dev/null 2>&1"], timeout=10)
        while len(descendants(os.getpid())) < 100:  # noqa: ASYNC110
            await anyio.sleep(0.05)
        await bwrap["default"].write_file("/app/a.txt", "host")
        assert await bwrap["default"].read_file("/app/a.txt") == "host"
        with suppress(TimeoutError):
            await bwrap["default"].exec(["true"], timeout=5)
        assert (await bwrap["checker"].exec(["echo", "fine"], timeout=30)).stdout == "fine\n"
    nothing_left.remember_family()


async def test_a_timeout_reaches_daemons_that_ignore_signals_but_spares_earlier_ones(bwrap: Machines) -> None:
    agent = bwrap["default"]
    await agent.exec(["sh", "-c", "setsid sleep 1001 >/dev/null 2>&1 &"], timeout=10)
    daemon = (
        "import os, signal, time\n"
        "for _ in range(2):\n"
        "    if os.fork(): os._exit(0)\n"
        "    os.setsid()\n"
        "for number in range(1, 64):\n"
        "    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "time.sleep(1002)\n"
    )
    with pytest.raises(TimeoutError):
        await agent.exec(["sh", "-c", 'trap "" TERM INT HUP; python3 -c "$0"; sleep 1003', daemon], timeout=2)
    left = await agent.exec(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"], timeout=10)
    assert "sleep 1001" in left.stdout
    assert "1002" not in left.stdout and "sleep 1003" not in left.stdout


async def test_killing_everything_inside_leaves_the_machine_working(bwrap: Machines) -> None:
    agent = bwrap["default"]
    for attack in (
        "kill -9 -1",
        "kill -9 1; kill -TERM 1; kill -INT 1; kill -STOP 1",
        "kill -9 $PPID; sleep 1",
    ):
        with anyio.fail_after(20):
            await agent.exec(["sh", "-c", attack], timeout=10)
        assert await works(agent)
    stopped = time.monotonic()
    with pytest.raises(TimeoutError):
        await agent.exec(["sh", "-c", "kill -STOP $PPID; exit 0"], timeout=2)
    assert time.monotonic() - stopped < 15
    assert await works(agent)


async def test_stopping_all_that_appears_does_not_keep_files_from_the_host(bwrap: Machines) -> None:
    agent = bwrap["default"].as_type(RuntimeVarsSandbox)
    stopper = "sleep 0.5; while :; do kill -STOP -1; done"
    await agent.exec(["sh", "-c", f"({stopper}) >/dev/null 2>&1 &"], timeout=10)
    await anyio.sleep(2)
    with anyio.fail_after(40):
        await agent.write_file("here.txt", "x")
        assert await agent.read_file("here.txt") == "x"
        with pytest.raises(TimeoutError):
            await agent.exec(["sleep", "0.5"], timeout=1)
    assert await works(agent)


async def test_process_1_cannot_be_traced_or_starved(bwrap: Machines) -> None:
    agent = bwrap["default"]
    program = """
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
print('attach', libc.ptrace(16, 1, 0, 0))
for what in ('environ', 'mem', 'fd/0', 'root', 'maps'):
    try:
        os.open('/proc/1/' + what, os.O_RDONLY)
        print('opened', what)
    except OSError:
        pass
for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_AS):
    try:
        resource.prlimit(1, limit, (0, 0))
        print('limited')
    except (PermissionError, OSError):
        pass
"""
    assert await python(agent, program) == "attach -1"
    assert await works(agent)


async def test_no_capability_and_no_way_to_one(bwrap: Machines) -> None:
    agent = bwrap["default"]
    status = (await agent.exec(["cat", "/proc/self/status"])).stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2"
    for attempt in (
        ["mount", "-t", "tmpfs", "none", "/mnt"],
        ["mount", "--bind", "/tmp", "/usr/bin"],
        ["mount", "-o", "remount,rw", "/usr/bin"],
        ["umount", "/proc"],
        ["unshare", "-Ur", "true"],
        ["unshare", "-m", "true"],
        ["nsenter", "-t", "1", "-m", "true"],
        ["mknod", "/tmp/disk", "b", "8", "0"],
        ["mknod", "/tmp/memory", "c", "1", "1"],
        ["chroot", "/", "true"],
        ["sh", "-c", "echo x > /usr/bin/evil"],
        ["sh", "-c", "echo '|/bin/sh' > /proc/sys/kernel/core_pattern"],
        ["sh", "-c", "echo c > /proc/sysrq-trigger"],
        ["chmod", "600", "/dev/null"],
    ):
        result = await agent.exec(["sh", "-c", 'mkdir -p /mnt; exec "$@"', "sh", *attempt], timeout=10)
        assert not result.success, attempt
    assert os.access("/dev/null", os.W_OK)


async def test_nothing_of_the_host_is_visible(
    bwrap: Machines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    agent = bwrap["default"]
    secret = tmp_path / "secret.txt"
    secret.write_text("host-secret-2")
    for path in (str(secret), __file__, "/etc/shadow", "/sys", "/home", "/boot", "/usr/local/share/man"):
        assert not (await agent.exec(["cat", path])).success, path
    found = await agent.exec(["sh", "-c", "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'"])
    assert "CONTROL" not in found.stdout and "pytest" not in found.stdout
    assert len((await agent.exec(["sh", "-c", "ls -d /proc/[0-9]*"])).stdout.split()) < 12
    assert (await agent.exec(["cat", "/etc/hostname"])).stdout == "default\n"
    result = await agent.exec(["find", "/", "-xdev", "-newermt", "1970-01-01", "-type", "s"], timeout=60)
    assert result.stdout == "", "no socket of the host"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("0.0.0.0", 0)) as server:
        server.settimeout(0.2)
        yield server


async def test_no_connection_leaves_the_network(bwrap: Machines, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0ct-test-{os.getpid()}")
        abstract.listen()
        program = f"""
import socket
for address in (('127.0.0.1', {port}), ('::1', {port}), ('10.0.0.1', {port}), ('8.8.8.8', 53)):
    try:
        socket.create_connection(address, timeout=3)
        print('connected', address)
    except OSError:
        pass
unix = socket.socket(socket.AF_UNIX)
try:
    unix.connect(chr(0) + 'ct-test-{os.getpid()}')
    print('connected to a socket of the host')
except OSError:
    pass
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    udp.sendto(b'x', ('8.8.8.8', 53))
    print('sent')
except OSError:
    pass
try:
    print(socket.getaddrinfo('example.com', 80))
except OSError:
    pass
"""
        assert await python(bwrap["default"], program) == ""
    with pytest.raises(TimeoutError):
        listener.accept()


async def test_other_networks_cannot_be_reached(bwrap: Machines) -> None:
    ask = "import socket; print(socket.create_connection(('{}', 8080), timeout=3))"
    assert "socket.socket" in await python(bwrap["default"], ask.format("web"))
    assert "Name or service" in await python(bwrap["checker"], ask.format("web"))
    assert "refused" in await python(bwrap["checker"], ask.format("127.0.0.1"))
    listen = "import socket, time; s = socket.create_server(('0.0.0.0', 9999)); time.sleep(60)"
    await bwrap["checker"].exec(
        ["sh", "-c", f'python3 -c "{listen}" >/dev/null 2>&1 & sleep 0.5'], timeout=10
    )
    refused = "import socket; socket.create_connection(('127.0.0.1', 9999), timeout=3)"
    assert "refused" in await python(bwrap["default"], refused)


async def test_services_do_not_see_each_other(bwrap: Machines) -> None:
    await bwrap["web"].write_file("/srv/web/token", "t")
    assert not (await bwrap["default"].exec(["sh", "-c", "ls /srv/web"])).success
    listing = (await bwrap["default"].exec(["sh", "-c", "cat /proc/[0-9]*/cmdline"])).stdout
    assert "web.py" not in listing
    assert (await bwrap["default"].exec(["sh", "-c", "kill -9 -1"], timeout=10)) is not None
    assert (await bwrap["web"].exec(["sh", "-c", "cat /proc/[0-9]*/cmdline"])).stdout.count("web.py") == 1


@pytest.mark.parametrize("planted", ["mkfifo f", "ln -s /dev/zero f", "ln -s /dev/tty f", "ln -s f f"])
async def test_what_is_no_file_is_refused_at_once(bwrap: Machines, planted: str) -> None:
    agent = bwrap["default"]
    await agent.exec(["sh", "-c", planted], timeout=10)
    with anyio.fail_after(10):
        with pytest.raises(OSError):
            await agent.read_file("f")
        with pytest.raises(OSError):
            await agent.write_file("f", "content")


async def test_a_fifo_with_a_reader_or_writer_is_refused_too(bwrap: Machines) -> None:
    agent = bwrap["default"]
    await agent.exec(["sh", "-c", "mkfifo r w; (cat r >got &) ; (yes >w &) ; sleep 0.3"], timeout=10)
    with anyio.fail_after(10):
        with pytest.raises(OSError):
            await agent.read_file("w")
        with pytest.raises(OSError):
            await agent.write_file("r", "host data")


async def test_links_lead_nowhere_outside(bwrap: Machines, tmp_path: Path) -> None:
    agent = bwrap["default"]
    target = tmp_path / "host.txt"
    target.write_text("host")
    await agent.exec(["ln", "-s", str(target), "out"])
    await agent.exec(["ln", "-s", "../../../../../../../../etc/shadow", "up"])
    for name in ("out", "up"):
        with pytest.raises(FileNotFoundError):
            await agent.read_file(name)
    await agent.exec(["ln", "-s", "/proc/1/root/etc/passwd", "own"])
    assert await agent.read_file("own") == await agent.read_file("/etc/passwd")
    for name in ("oom_score_adj", "comm", "mem", "timerslack_ns"):
        await agent.exec(["ln", "-sfn", f"/proc/self/{name}", "process"])
        with pytest.raises(OSError):
            await agent.write_file("process", "1")
    await agent.exec(["sh", "-c", f"mkdir -p {tmp_path}"])
    await agent.write_file("out", "inside")
    assert target.read_text() == "host"
    await agent.exec(["ln", "-sfn", "/usr/bin", "bin"])
    with pytest.raises(OSError):
        await agent.write_file("bin/evil", "x")


async def test_a_file_of_any_size_is_read_with_a_bound(bwrap: Machines) -> None:
    agent = bwrap["default"]
    await agent.exec(["truncate", "-s", "1T", "sparse"])
    with anyio.fail_after(60):
        with pytest.raises(OutputLimitExceededError):
            await agent.read_file("sparse")
    growing = "(while :; do head -c 1000000 /dev/zero >> grows || :> grows; done) >/dev/null 2>&1 & sleep 0.3"
    await agent.exec(["sh", "-c", growing], timeout=10)
    with anyio.fail_after(60), suppress(OutputLimitExceededError):
        await agent.read_file("grows", text=False)


async def test_a_full_disk_is_the_machines_own(bwrap: Machines) -> None:
    agent = bwrap["default"]
    free = os.statvfs("/tmp").f_bavail
    for folder in ("/app", "/tmp", "/dev/shm", "/root", "/var/tmp", "/usr/local"):
        flood = f"head -c 1073741824 /dev/zero > {folder}/flood"
        result = await agent.exec(["sh", "-c", flood], timeout=60)
        assert not result.success, folder
    with pytest.raises(OSError):
        await agent.write_file("more", "x" * 1_000_000)
    assert await agent.read_file("README.md") == "a small project\n"
    assert (await bwrap["checker"].exec(["sh", "-c", "echo x > file && cat file"])).stdout == "x\n"
    # Others write there, too, but no flood of this size.
    assert free - os.statvfs("/tmp").f_bavail < (900 << 20) // os.statvfs("/tmp").f_frsize
    await agent.exec(
        ["sh", "-c", "rm -f /*/flood /dev/shm/flood /usr/local/flood /var/tmp/flood"], timeout=20
    )
    assert await works(agent)


async def test_memory_is_bounded(bwrap: Machines) -> None:
    agent = bwrap["default"]
    hog = "data = bytearray()\nwhile True: data += b'x' * (8 << 20)"
    result = await agent.exec(["python3", "-c", hog], timeout=60)
    assert not result.success
    assert await works(agent)


async def test_replaced_programs_do_not_fool_the_host(bwrap: Machines, tmp_path: Path) -> None:
    agent = bwrap["default"].as_type(RuntimeVarsSandbox)
    await agent.write_file("truth.txt", "true")
    lie = "#!/bin/sh\necho a lie\n"
    for name in ("python3", "python", "sh", "cat", "tar", "timeout", "env", "ls", "nsenter", "base64", "tee"):
        await agent.exec(["/bin/rm", "-f", f"/usr/local/bin/{name}"])
        await agent.write_file(f"/usr/local/bin/{name}", lie)
        await agent.exec(["/bin/chmod", "+x", f"/usr/local/bin/{name}"])
    await agent.write_file("/etc/ld.so.preload", "/app/evil.so\n")
    await agent.exec(
        ["/bin/sh", "-c", "mv /tmp /tmp2; mv /etc /etc2; mv /root /root2; mv /usr/local /usr/gone"]
    )
    assert await agent.read_file("truth.txt") == "true"
    await agent.write_file("truth.txt", "still true")
    assert await agent.read_file("/app/truth.txt") == "still true"
    tar = tmp_path / "app.tar"
    assert await agent.archive("/app", tar, max_bytes=1 << 20, timeout=20)
    with tarfile.open(tar) as archive:
        assert archive.extractfile("truth.txt").read() == b"still true"  # type: ignore[union-attr]
    assert (await bwrap["checker"].exec(["python3", "-c", "print(6 * 7)"])).stdout == "42\n"
    await agent.exec(["/bin/sh", "-c", "rm -rf /app /usr/gone /lib /bin /etc2 /tmp2"], timeout=20)
    with pytest.raises(FileNotFoundError):
        await agent.read_file("truth.txt")


async def test_a_tree_made_to_break_archives(bwrap: Machines, tmp_path: Path) -> None:
    agent = bwrap["default"].as_type(RuntimeVarsSandbox)
    program = """
import os, socket
os.mkfifo('fifo')
socket.socket(socket.AF_UNIX).bind('socket')
os.symlink('/etc/shadow', 'link')
open(b'caf\\xe9 \\n', 'w').write('odd name')
os.mkdir('locked'); open('locked/in', 'w').write('kept'); os.chmod('locked', 0)
open('sparse', 'w').truncate(1 << 40)
"""
    assert await python(agent, program) == ""
    tar = tmp_path / "app.tar"
    with pytest.raises(OverflowError):
        await agent.archive("/app", tar, max_bytes=1 << 20, timeout=20)
    await agent.exec(["rm", "sparse"])
    assert await agent.archive("/app", tar, max_bytes=1 << 20, timeout=20)
    with tarfile.open(tar) as archive:
        names = {member.name: member for member in archive.getmembers()}
        assert names["fifo"].isfifo() and names["link"].linkname == "/etc/shadow"
        assert "caf\udce9 \n" in names and "socket" not in names
        assert archive.extractfile("locked/in").read() == b"kept"  # type: ignore[union-attr]


async def test_a_machine_that_is_gone_says_so(bwrap: Machines) -> None:
    machine = bwrap["checker"].as_type(ServiceSandbox).machine
    for pid in descendants(machine.process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, 9)
    with anyio.fail_after(10):
        for call in (lambda: bwrap["checker"].exec(["true"]), lambda: bwrap["checker"].read_file("x")):
            with pytest.raises((SandboxUnavailableError, OSError)):
                await call()
    assert await works(bwrap["default"])


KILLED = """
import anyio, sys
from tests.sandbox.conftest import sample
async def main():
    async with sample(sys.argv[1]) as machines:
        for machine in machines.values():
            await machine.exec(["sh", "-c", "setsid sleep 3600 & (trap '' TERM; sleep 3600) & :"])
        print("ready", flush=True)
        await machines["default"].exec(["sleep", "3600"])
anyio.run(main)
"""


@pytest.mark.parametrize("name", ["bwrap", "process"])
async def test_a_killed_run_takes_its_machines_along(anyio_backend: str, name: str) -> None:
    async with sample(name):
        pass
    root = Path(__file__).parents[2]
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", KILLED, name], stdout=subprocess.PIPE, text=True, cwd=root
    ) as run:
        assert run.stdout is not None and run.stdout.readline() == "ready\n"
        family = descendants(run.pid)
        assert len(family) > 6
        run.kill()
    with anyio.fail_after(60):
        while any(is_running(pid, at) for pid, at in family.items()):  # noqa: ASYNC110
            await anyio.sleep(0.05)
        # What it was just starting may take the sweep of another sample.
        left: list[Path] = [Path()]
        while left:
            async with sample(name):
                left = [*groups_of(run.pid), *Path("/tmp").glob(f"ct-*-{run.pid}-*")]


def containers_of(pid: int) -> list[str]:
    listing = ["docker", "ps", "--all", "--format", '{{.Label "com.docker.compose.project.config_files"}}']
    files = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split()
    return [file for file in files if f"/sample-{pid}-" in file]


@pytest.mark.docker
async def test_containers_of_a_killed_run_go_at_the_next_start(anyio_backend: str) -> None:
    async with sample("lb-docker"):
        pass
    root = Path(__file__).parents[2]
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", KILLED, "lb-docker"], stdout=subprocess.PIPE, text=True, cwd=root
    ) as run:
        assert run.stdout is not None and "ready\n" in run.stdout
        run.kill()
    assert len(containers_of(run.pid)) == 3
    async with sample("lb-docker"):
        assert containers_of(run.pid) == []


async def test_machines_start_from_several_threads(anyio_backend: str, nothing_left: Leftovers) -> None:
    """Ending a thread that started nothing must not end a machine."""
    async with sample("bwrap") as machines:
        threads = [threading.Thread(target=lambda: subprocess.run(["true"], check=True)) for _ in range(3)]
        for thread in threads:
            thread.start()
            thread.join()
        assert await works(machines["default"])
