"""The first five minutes: the built wheel in a fresh environment, in an empty folder, without a network."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65534

# A network namespace of its own, in which only loopback is up; then the command.
OFFLINE = """
import ctypes, fcntl, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x40000000):
    sys.exit(f"unshare: {os.strerror(ctypes.get_errno())}")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, 0x8914, struct.pack("16sH14s", b"lo", 0x41, b""))
user = int(sys.argv[1])
if user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
if sys.argv[2] == "no-user-namespaces":
    if libc.unshare(0x10000000):
        sys.exit(f"unshare: {os.strerror(ctypes.get_errno())}")
    with open("/proc/sys/user/max_user_namespaces", "w") as limit:
        limit.write("0")
os.execv(sys.argv[3], sys.argv[3:])
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty folder that every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="ct-first-run-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def install(wheel: Path, place: Path, python: str) -> Path:
    """A fresh environment of a Python with the pinned packages and the wheel; its `ct`."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert uv, "uv is one of the pinned development packages"
    venv = place / "venv"
    subprocess.run([uv, "venv", "--quiet", "--python", python, venv], check=True)
    add = [uv, "pip", "install", "--quiet", "--python", venv / "bin" / "python"]
    subprocess.run([*add, "--require-hashes", "-r", ROOT / "requirements" / "runtime.txt"], check=True)
    subprocess.run([*add, "--no-deps", wheel], check=True)
    return venv / "bin" / "ct"


def python_of_everyone() -> str:
    """This Python, or the system's where this one is in a folder that only root may enter."""
    own = Path(sys.executable).resolve()
    reached = all(folder.stat().st_mode & 0o001 for folder in own.parents)
    return str(own) if reached else "/usr/bin/python3"


DEMO = ("demo", "--epochs", "1")
CONTROL_EVAL = (
    "run", "control-eval", "--honest-policy", "scripted", "--attack-policy", "scripted",
    "-e", "demo/web_scraping", "--all", "--limit", "2",
)  # fmt: skip


def offline(
    ct: Path, place: Path, *args: str, user: int = 0, namespaces: str = "user-namespaces"
) -> tuple[dict[str, Any], str]:
    """Run a `ct` command offline as a user with an empty home; what it prints for programs and for people."""
    home = place / "home"
    home.mkdir()
    os.chown(home, user, user)
    environment = {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TMPDIR": str(home),
        "DOCKER_HOST": f"unix://{home}/no-daemon",
    }
    words = [sys.executable, "-c", OFFLINE, str(user), namespaces, ct, *args, "--format", "json"]
    done = subprocess.run(
        words, cwd=home, env=environment, capture_output=True, text=True, check=False, timeout=800
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def all_scored(told: dict[str, Any]) -> dict[str, Any]:
    """Check that the runs of the demo scored what they played, and the figures are there; its first run."""
    for part, samples in (("control_eval", 8), ("deferring", 8), ("replay", 2)):
        scored = {"status": "success", "samples": samples, "unscored": 0, "errored": 0}
        assert scored.items() <= told[part].items()
    assert any(name.endswith("safety_curve.png") for name in told["files"])
    return told["control_eval"]


pytestmark = pytest.mark.timeout(900)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="leaving the network behind takes root")


@needs_root
def test_the_wheel_plays_the_demo_offline_as_a_plain_user(wheel: Path, place: Path) -> None:
    """Root plays it from the checkout: `make demo`."""
    result, said = offline(install(wheel, place, python_of_everyone()), place, *DEMO, user=NOBODY)
    control_eval = all_scored(result)
    log = place / "home" / str(control_eval["log"])
    assert "sandbox   bubblewrap" in said
    assert log.parent == place / "home" / "logs"
    assert log.stat().st_size > 0


@needs_root
@pytest.mark.slow
def test_where_user_namespaces_are_forbidden(wheel: Path, place: Path) -> None:
    ct = install(wheel, place, python_of_everyone())
    result, said = offline(ct, place, *DEMO, user=NOBODY, namespaces="no-user-namespaces")
    all_scored(result)
    assert "sandbox   plain processes" in said


@needs_root
@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_on_every_python_of_this_machine(wheel: Path, place: Path, version: str) -> None:
    versions = Path.home() / ".pyenv" / "versions"
    pythons = [*versions.glob(f"{version}.*/bin/python3"), *Path("/usr/bin").glob(f"python{version}")]
    if not pythons:
        pytest.skip(f"there is no Python {version} on this machine")
    result, _ = offline(install(wheel, place, str(pythons[0])), place, *CONTROL_EVAL)
    assert {"status": "success", "samples": 2, "unscored": 0, "errored": 0}.items() <= result.items()
