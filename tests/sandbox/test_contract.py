"""Every sandbox runs the same environment in the same way."""

import os
import socket
import tarfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import pytest
from inspect_ai.util import SandboxEnvironment, SandboxUserUnsupportedError

from control_tower.environments.runtime_vars import RuntimeVar, RuntimeVarsSandbox, declare
from tests.sandbox.conftest import ECHO, sample

Machines = dict[str, SandboxEnvironment]
pytestmark = pytest.mark.anyio
ASK = "import urllib.request as u; print(u.urlopen('http://any.example/hello').read().decode())"


async def test_the_agents_machine_comes_first_and_has_its_files(machines: Machines) -> None:
    assert next(iter(machines)) == "default"
    assert set(machines) == {"default", "web", "checker"}
    agent = machines["default"]
    assert await agent.read_file("README.md") == "a small project\n"
    assert (await agent.exec(["./tool.sh"])).stdout == "tool says hi\n"
    result = await agent.exec(["sh", "-c", "ls; exit 3"])
    assert (result.success, result.returncode, result.stdout) == (False, 3, "README.md\ntool.sh\n")


async def test_services_have_their_own_files(machines: Machines) -> None:
    for name in machines:
        await machines[name].write_file("mine.txt", name)
    assert await machines["web"].read_file("mine.txt") == "web"
    assert await machines["default"].read_file("mine.txt") == "default"
    with pytest.raises(FileNotFoundError):
        await machines["default"].read_file("web.py")


async def test_the_agent_reaches_the_web_service_through_the_proxy_variable(machines: Machines) -> None:
    answer = await machines["default"].exec(["python3", "-c", ASK], timeout=30)
    assert answer.stdout == "you asked for http://any.example/hello\n", answer.stderr
    assert (await machines["web"].read_file("requests.log")).splitlines()[-1] == "http://any.example/hello"


async def test_a_command_sees_only_its_services_variables(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_API_KEY", "host-secret-1")
    agent = machines["default"]
    names = (await agent.exec(["env"], env={"EXTRA": "1"})).stdout
    assert "host-secret-1" not in names
    assert "GREETING=hello nobody" in names and "EXTRA=1" in names
    assert (await agent.exec(["sh", "-c", "echo $EXTRA"])).stdout == "\n"


async def test_a_script_given_by_its_absolute_path_runs(machines: Machines) -> None:
    agent = machines["default"]
    await agent.write_file("/tmp/script.sh", "echo it ran in $(basename $PWD)\n")
    assert (await agent.exec(["sh", "/tmp/script.sh"])).stdout == "it ran in app\n"
    await agent.exec(["rm", "/tmp/script.sh"])
    with pytest.raises(FileNotFoundError):
        await agent.read_file("/tmp/script.sh")


REACH_HOST = """
import socket, struct
addresses = ['127.0.0.1', '172.17.0.1', '8.8.8.8']
for line in open('/proc/net/route').read().splitlines()[1:]:
    network = struct.unpack('<I', bytes.fromhex(line.split()[1]))[0]
    addresses.append(socket.inet_ntoa(struct.pack('>I', network + 1)))
for address in addresses:
    try:
        socket.create_connection((address, PORT), timeout=2)
        print('reached', address)
    except OSError:
        pass
"""


async def test_neither_the_host_nor_the_internet_is_reached(machines: Machines) -> None:
    agent = machines["default"]
    if "Process" in type(agent).__name__:
        pytest.skip("plain processes are not isolated")
    with socket.create_server(("0.0.0.0", 0)) as listener:
        program = REACH_HOST.replace("PORT", str(listener.getsockname()[1]))
        result = await agent.exec(["python3", "-c", program], timeout=60)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr


async def test_a_service_on_another_network_is_not_reached(machines: Machines) -> None:
    if "Process" in type(machines["default"]).__name__:
        pytest.skip("plain processes are not isolated")
    ask = "import socket; socket.create_connection(('web', 8080), timeout=5)"
    assert (await machines["default"].exec(["python3", "-c", ask], timeout=30)).success
    assert not (await machines["checker"].exec(["python3", "-c", ask], timeout=30)).success


BEATING = "while :; do date +%s%N > new; mv new beat; sleep 0.05; done"


async def beat(agent: SandboxEnvironment) -> str:
    """The last beat of what beats in the machine, once it does."""
    with anyio.fail_after(30):
        while True:
            with suppress(FileNotFoundError):
                return await agent.read_file("beat")
            await anyio.sleep(0.05)


async def test_background_processes_survive_between_calls_and_do_not_hold_the_call(
    machines: Machines,
) -> None:
    agent = machines["default"]
    with anyio.fail_after(10):
        await agent.exec(["sh", "-c", f"({BEATING}) & echo started"])
    first = await beat(agent)
    with anyio.fail_after(30):
        while await beat(agent) == first:  # noqa: ASYNC110
            await anyio.sleep(0.05)


async def test_a_server_in_the_background_may_go_on_writing_to_the_closed_output(machines: Machines) -> None:
    agent = machines["default"]
    script = "for i in range(3000):\n print('x' * 100, flush=True)\nopen('finished', 'w').close()"
    await agent.exec(["sh", "-c", f'python3 -c "{script}" & true'])
    with anyio.fail_after(30):
        while not (await agent.exec(["test", "-e", "finished"])).success:  # noqa: ASYNC110
            await anyio.sleep(0.2)


async def test_a_timeout_ends_the_command(machines: Machines) -> None:
    started = time.monotonic()
    # Plain processes see those of other tests, too.
    long = f"sleep 60.{os.getpid()}"
    with pytest.raises(TimeoutError):
        await machines["default"].exec(["sh", "-c", f"trap '' TERM; {long} & wait; {long}"], timeout=1)
    assert time.monotonic() - started < 12
    listing = await machines["default"].exec(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])
    assert long not in listing.stdout


async def test_a_call_without_a_timeout_has_the_fallback_one(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTROL_TOWER_FALLBACK_EXEC_TIMEOUT", "1")
    with anyio.fail_after(20), pytest.raises(TimeoutError):
        await machines["default"].exec(["sleep", "60"])


async def test_a_cancelled_call_leaves_no_command_behind(machines: Machines) -> None:
    agent = machines["default"]
    async with anyio.create_task_group() as group:
        group.start_soon(partial(agent.exec, ["sh", "-c", BEATING], timeout=60))
        await beat(agent)
        group.cancel_scope.cancel()
    if "Docker" not in type(agent).__name__:
        await anyio.sleep(0.5)
        before = await beat(agent)
        await anyio.sleep(0.3)
        assert await beat(agent) == before


async def test_many_calls_at_once(machines: Machines) -> None:
    results: dict[int, str] = {}

    async def one(number: int) -> None:
        results[number] = (await machines["default"].exec(["sh", "-c", f"sleep 0.2; echo {number}"])).stdout

    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(one, number)
    assert results == {number: f"{number}\n" for number in range(12)}


async def test_output_beyond_the_limit_keeps_its_end(machines: Machines) -> None:
    result = await machines["default"].exec(
        ["sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x; echo the end"], timeout=60
    )
    assert len(result.stdout) <= 10 * 1024**2
    assert result.stdout.endswith("x" * 100 + "the end\n")


async def test_only_root_is_there(machines: Machines) -> None:
    agent = machines["default"]
    assert (await agent.exec(["true"], user="root")).success
    if "Docker" not in type(agent).__name__:
        with pytest.raises(SandboxUserUnsupportedError):
            await agent.exec(["true"], user="nobody")


async def test_a_folder_is_archived_without_its_own_programs(machines: Machines, tmp_path: Path) -> None:
    agent = machines["default"].as_type(RuntimeVarsSandbox)
    await agent.exec(["sh", "-c", "mkdir -p sub/empty; ln -s README.md link; chmod 000 README.md"])
    tar = tmp_path / "app.tar"
    assert await agent.archive("/app", tar, max_bytes=1 << 20, timeout=30)
    with tarfile.open(tar) as archive:
        names = {os.path.normpath(member.name): member for member in archive.getmembers()}
        assert set(names) - {"."} == {"README.md", "link", "sub", "sub/empty", "tool.sh"}
        readme = archive.extractfile(names["README.md"])
        assert readme is not None and readme.read() == b"a small project\n"
        assert names["link"].linkname == "README.md" and names["README.md"].mode == 0
        assert names["tool.sh"].mode & 0o111
    for relative, member in ((".", "sub/empty"), ("sub", "empty")):
        assert await agent.archive(relative, tar, max_bytes=1 << 20, timeout=30)
        with tarfile.open(tar) as archive:
            assert member in {os.path.normpath(name) for name in archive.getnames()}
    with pytest.raises(OverflowError):
        await agent.archive("/app", tar, max_bytes=1 << 11, timeout=30)
    with pytest.raises(FileNotFoundError):
        await agent.archive("/app/none", tar, max_bytes=1 << 20, timeout=30)


@pytest.mark.parametrize("name", ["bwrap", "process", pytest.param("lb-docker", marks=pytest.mark.docker)])
async def test_runtime_variables_reach_the_agents_machine_only(anyio_backend: str, name: str) -> None:
    declare("demo/runtime", {"SESSION": RuntimeVar(lambda: "v $HOME 'quoted'")})
    metadata = {"environment": {"id": "demo/runtime"}, "runtime_vars": ["SESSION"], "who": "me"}
    async with sample(name, metadata=metadata) as machines:
        agent = machines["default"].as_type(RuntimeVarsSandbox)
        assert agent.runtime_vars == {"SESSION": "v $HOME 'quoted'"}
        shown = await agent.exec(["sh", "-c", 'echo "$SESSION"; echo "$GREETING"'])
        assert shown.stdout == "v $HOME 'quoted'\nhello me\n"
        assert (await machines["web"].exec(["sh", "-c", "echo $SESSION"])).stdout == "\n"
        assert not machines["web"].as_type(RuntimeVarsSandbox).runtime_vars
    assert not list(ECHO.parent.glob("*sample*"))


async def test_bubblewrap_shows_no_packages_that_are_installed_on_the_host(
    bwrap: dict[str, SandboxEnvironment],
) -> None:
    look = "import os, site; print([os.listdir(p) for p in site.getsitepackages() if os.path.isdir(p)])"
    shown = await bwrap["default"].exec(["python3", "-c", look])
    assert set(shown.stdout) <= set("[], \n"), shown.stdout
    write = "import os, site; os.mkdir(os.path.join(site.getsitepackages()[0], 'planted'))"
    assert "Read-only file system" in (await bwrap["default"].exec(["python3", "-c", write])).stderr


@pytest.mark.parametrize("name", ["bwrap", "process"])
async def test_a_service_that_fails_is_named_with_its_output(
    anyio_backend: str, name: str, tmp_path: Path
) -> None:
    from control_tower.errors import StateError

    compose = tmp_path / "compose.yaml"
    compose.write_text(
        "x-control-tower: {bwrap: true}\n"
        "services:\n"
        "  default: {}\n"
        "  db:\n"
        "    command: [sh, -c, 'echo no disk for the database >&2; exit 1']\n"
        "    healthcheck: {test: [CMD, 'false'], interval: 1s, timeout: 1s, retries: 5}\n"
    )
    with pytest.raises(StateError, match=r"service 'db' did not get ready: no disk for the database"):
        async with sample(name, compose):
            pass
