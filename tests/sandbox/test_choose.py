"""The sandbox that is chosen, the line that says why, and who is refused."""

from pathlib import Path

import pytest
from inspect_ai.util import SandboxEnvironmentSpec

from control_tower.errors import StateError, UsageError
from control_tower.sandbox import choose
from tests.sandbox.conftest import PLAIN

NO_DOCKER = "no Docker daemon answers: start it, or use `--sandbox bwrap`"
NO_BUBBLEWRAP = "bubblewrap cannot isolate here (denied): allow user namespaces, or use `--sandbox docker`"
SPEC = SandboxEnvironmentSpec("lb-docker", str(PLAIN))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What works on this machine: replaced, since no machine has every combination."""
    state: dict[str, object] = {"docker": None, "bwrap": None, "missing": []}
    monkeypatch.setattr(choose, "docker_problem", lambda: state["docker"])
    monkeypatch.setattr(choose, "bubblewrap_problem", lambda: state["bwrap"])
    monkeypatch.setattr(choose, "missing_images", lambda file: state["missing"])
    return state


def chosen(
    requested: str, harmless: bool = False, spec: SandboxEnvironmentSpec = SPEC
) -> choose.SandboxChoice:
    return choose.choose_sandbox(requested, spec, scripted_or_demo_models=harmless)


def test_auto_takes_docker_then_bubblewrap_then_processes(here: dict[str, object]) -> None:
    assert chosen("auto").type == "lb-docker"
    here["missing"] = ["python:3.12-slim"]
    assert chosen("auto") == choose.SandboxChoice("bwrap", "bubblewrap: Docker has no image python:3.12-slim")
    here["docker"] = NO_DOCKER
    assert chosen("auto").reason == "bubblewrap: no Docker daemon answers"
    here["bwrap"] = NO_BUBBLEWRAP
    assert chosen("auto", harmless=True) == choose.SandboxChoice(
        "process",
        "plain processes without isolation: no Docker daemon answers;"
        " bubblewrap cannot isolate here (denied)",
    )
    with pytest.raises(StateError, match=r"only scripted policies and demo models.*--sandbox docker"):
        chosen("auto")


def test_processes_are_refused_to_other_models(here: dict[str, object]) -> None:
    assert chosen("process", harmless=True).type == "process"
    with pytest.raises(StateError, match=r"isolate nothing.*--sandbox docker.*--sandbox bwrap"):
        chosen("process")


def test_what_was_asked_for_and_is_missing_is_an_error_with_the_way_out(here: dict[str, object]) -> None:
    assert chosen("docker").type == chosen("lb-docker").type == "lb-docker"
    assert chosen("bwrap").type == "bwrap"
    here.update(docker=NO_DOCKER, bwrap=NO_BUBBLEWRAP)
    with pytest.raises(StateError, match="no Docker daemon answers: start it"):
        chosen("docker", harmless=True)
    with pytest.raises(StateError, match="allow user namespaces"):
        chosen("bwrap", harmless=True)
    assert choose.sandbox_problems("lb-docker") == [NO_DOCKER]
    assert choose.sandbox_problems("bwrap") == [NO_BUBBLEWRAP]
    assert choose.sandbox_problems("process") == []


def test_an_environment_that_needs_docker_gets_nothing_else(here: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services: {default: {image: x}}")
    spec = SandboxEnvironmentSpec("lb-docker", str(tmp_path / "compose.yaml"))
    here["missing"] = ["x"]
    assert chosen("auto", spec=spec).type == "lb-docker"
    for other in ("bwrap", "process"):
        with pytest.raises(StateError, match="runs in Docker only"):
            chosen(other, harmless=True, spec=spec)
    here["docker"] = NO_DOCKER
    with pytest.raises(StateError, match="this environment needs Docker, but no Docker daemon answers"):
        chosen("auto", harmless=True, spec=spec)


def test_other_sandbox_types_pass_when_they_exist(here: dict[str, object]) -> None:
    assert chosen("auto", spec=SandboxEnvironmentSpec("k8s", None)).type == "k8s"
    with pytest.raises(UsageError, match="no sandbox is called 'bwarp'; did you mean 'bwrap'"):
        chosen("bwarp")
    with pytest.raises(UsageError, match="without isolation"):
        chosen("local")
