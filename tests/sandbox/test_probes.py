"""Whether sandboxes can be used here is asked of real programs; one that is killed has not answered."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from control_tower.sandbox import docker_probe, namespaces

Wrap = Callable[[str, int], str]


@pytest.fixture
def wrapped(tmp_path: Path) -> Wrap:
    """Makes a program that is killed some times before it is what it stands for."""

    def make(program: str, times: int) -> str:
        made = tmp_path / Path(program).name
        made.write_text(
            "#!/bin/sh\n"
            f"for n in $(seq {times}); do mkdir {tmp_path}/try-$n 2>/dev/null && kill -9 $$; done\n"
            f'exec {program} "$@"\n'
        )
        made.chmod(0o755)
        return str(made)

    return make


@pytest.mark.parametrize(("times", "works"), [(0, True), (1, True), (2, True), (3, False)])
def test_a_killed_bubblewrap_is_asked_again(
    wrapped: Wrap, times: int, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if problem := namespaces.bubblewrap_problem():
        pytest.skip(problem)
    real = namespaces.find_bubblewrap()
    made = replace(real, host=wrapped(real.host, times))
    monkeypatch.setattr(namespaces, "find_bubblewrap", lambda: made)
    said = namespaces.bubblewrap_problem.__wrapped__()
    if works:
        assert said is None
    else:
        assert said and said.startswith("bubblewrap cannot isolate here (bubblewrap ended with -9): allow")


@pytest.mark.docker
@pytest.mark.parametrize(("times", "works"), [(2, True), (6, False)])
def test_a_killed_docker_client_is_asked_again(
    wrapped: Wrap, times: int, works: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if problem := docker_probe.docker_problem():
        pytest.skip(problem)
    docker = shutil.which("docker")
    assert docker
    wrapped(docker, times)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    said = docker_probe.docker_problem.__wrapped__()
    assert said is None if works else said and said.startswith("no Docker daemon answers")
