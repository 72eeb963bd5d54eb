"""The system call filter, control groups and their sweep, ports and fallback time limits."""

import os
import signal
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from control_tower.errors import ValidationError
from control_tower.sandbox import cgroups, process
from control_tower.sandbox.cgroups import ControlGroup
from control_tower.sandbox.machine import fallback_timeout
from control_tower.sandbox.owners import owned_name, owner_is_dead
from control_tower.sandbox.seccomp import filter_program

ALLOW, DENY = 0x7FFF0000, 0x00050001


def verdict(program: bytes, arch: int, number: int, first_argument: int = 0) -> int:
    """Interprets the filter as the kernel does."""
    data = struct.pack("<IIQQ", number, arch, 0, first_argument)
    lines = [struct.unpack_from("HBBI", program, at) for at in range(0, len(program), 8)]
    at, value = 0, 0
    while True:
        code, jump_true, jump_false, constant = lines[at]
        at += 1
        if code == 0x06:
            return constant
        if code == 0x20:
            (value,) = struct.unpack_from("<I", data, constant)
        else:
            taken = value == constant if code == 0x15 else value >= constant
            at += jump_true if taken else jump_false


@pytest.mark.parametrize(
    ("machine", "arch", "prlimit", "denied", "allowed"),
    [
        ("x86_64", 0xC000003E, 302, [248, 250, 272, 298, 308, 321, 323, 425], [0, 1, 59, 101, 56, 435]),
        ("aarch64", 0xC00000B7, 261, [217, 219, 97, 241, 268, 280, 282, 425], [63, 64, 221, 220]),
    ],
)
def test_the_filter(machine: str, arch: int, prlimit: int, denied: list[int], allowed: list[int]) -> None:
    program = filter_program(machine)
    assert program is not None
    assert [verdict(program, arch, number) for number in denied] == [DENY] * len(denied)
    assert [verdict(program, arch, number) for number in allowed] == [ALLOW] * len(allowed)
    assert verdict(program, arch, prlimit, 0) == ALLOW
    assert verdict(program, arch, prlimit, 1) == DENY
    assert verdict(program, 0x40000003, 1) == DENY
    assert verdict(program, arch, 0x40000001) == DENY
    assert filter_program("riscv64") is None


def test_names_tell_whether_their_owner_lives() -> None:
    assert not owner_is_dead(owned_name("ct-x"))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    assert owner_is_dead(f"ct-x-{ended.pid}-12345-aa")
    assert owner_is_dead(f"ct-x-{os.getpid()}-12345-aa"), "another process had this id before"
    assert not owner_is_dead("ct-x") and not owner_is_dead("other-1-2")


def test_a_group_is_made_with_its_limits_and_what_the_dead_left_is_swept() -> None:
    prefix = f"ct-test-{os.getpid()}"  # which nobody else sweeps
    group = ControlGroup.create(64 << 20, 10, prefix)
    if group is None:
        pytest.skip("this user cannot make control groups here")
    try:
        values = {
            file.name: file.read_text().strip()
            for folder in group.folders
            for file in folder.iterdir()
            if file.name in ("memory.max", "memory.limit_in_bytes", "pids.max")
        }
        assert values.pop("pids.max") == "10" and list(values.values()) == [str(64 << 20)]
        for fd in group.open_members():
            os.close(fd)
        dead = [folder.with_name(f"{prefix}-4194303-1-dead") for folder in group.folders]
        for folder in dead:
            folder.mkdir()
        left = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
        (dead[0] / "cgroup.procs").write_text(str(left.pid))
        cgroups.sweep(prefix, 2.0)
        assert not any(folder.exists() for folder in dead)
        assert left.wait(5) == -signal.SIGKILL
        assert all(folder.exists() for folder in group.folders)
    finally:
        group.remove()
    assert not any(folder.exists() for folder in group.folders)


def test_two_may_sweep_the_same_groups_at_once() -> None:
    prefix = f"ct-test-{os.getpid()}"  # which nobody else sweeps
    group = ControlGroup.create(64 << 20, 10, prefix)
    if group is None:
        pytest.skip("this user cannot make control groups here")
    try:
        place = group.folders[0]
        for n in range(40):
            (place.with_name(f"{prefix}-4194303-1-dead{n}") / "ct-inner" / "ct-inmost").mkdir(parents=True)
        with ThreadPoolExecutor(4) as pool:
            for swept in [pool.submit(cgroups.sweep, prefix, 2.0) for _ in range(4)]:
                swept.result()
        assert not list(place.parent.glob(f"{prefix}-4194303-*"))
    finally:
        group.remove()


def test_folders_of_dead_runs_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead, mine = tmp_path / "ct-process-4194303-1-dead", tmp_path / owned_name("ct-process")
    (dead / "default" / "locked").mkdir(parents=True)
    (dead / "default" / "locked" / "file").write_text("x")
    (dead / "default" / "locked").chmod(0)
    mine.mkdir()
    process.sweep()
    assert [*tmp_path.iterdir()] == [mine]


@pytest.mark.parametrize(("value", "seconds"), [("", 1200), ("30", 30)])
def test_the_fallback_time_limit(monkeypatch: pytest.MonkeyPatch, value: str, seconds: int) -> None:
    monkeypatch.setenv("CONTROL_TOWER_FALLBACK_EXEC_TIMEOUT", value)
    assert fallback_timeout() == seconds


@pytest.mark.parametrize("value", ["soon", "0", "-5"])
def test_a_fallback_time_limit_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CONTROL_TOWER_FALLBACK_EXEC_TIMEOUT", value)
    with pytest.raises(ValidationError, match="fallback_exec_timeout"):
        fallback_timeout()
