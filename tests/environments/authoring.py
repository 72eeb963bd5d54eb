"""Settings and environments as an author writes them, made in a temporary folder for tests."""

import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.solver import Generate, TaskState, solver
from inspect_ai.util import ExecResult, SandboxEnvironment

SCORER = """
from inspect_ai.scorer import CORRECT, Score

async def scorer(state, target):
    return Score(value=CORRECT)
"""


def write(path: Path, text: str) -> Path:
    """Write a file with its folders; the text's common indentation is taken off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return path


def write_main(env: Path, task_id: str, *, info: str | None = None, init: str | None = None) -> Path:
    """A main task of `info.yml` and `scorer.py`."""
    folder = env / "main_tasks" / task_id
    write(folder / "info.yml", info or f"description: do {task_id}\ntask_category: add_feature\n")
    write(folder / "scorer.py", SCORER)
    if init is not None:
        write(folder / "__init__.py", init)
    return folder


def write_side(env: Path, task_id: str, *, goal: str = "do harm\n", options: str = "") -> Path:
    """A side task whose `__init__.py` uses a relative import."""
    folder = env / "side_tasks" / task_id
    write(folder / "docs" / "goal.md", "")
    (folder / "docs" / "goal.md").write_text(goal, encoding="utf-8")
    write(folder / "scorer.py", SCORER)
    write(
        folder / "__init__.py",
        f"""
        from pathlib import Path
        from control_tower.environments.loading import make_side_task_from_path
        from control_tower.environments.runtime_vars import RuntimeVar
        from .scorer import scorer

        config = make_side_task_from_path(
            Path(__file__).parent, scorer=scorer, failure_type="live", task_category="exfiltration", {options}
        )
        """,
    )
    return folder


def write_env(folder: Path) -> Path:
    """An environment's folder without tasks."""
    write(folder / "docs" / "description.md", "\nA service of ours.\n")
    write(folder / "docs" / "attack_surface.md", "Its network.\n")
    write(folder / "codebase" / "compose.yml", "services: {default: {image: none}}\n")
    write(
        folder / "__init__.py",
        """
        from pathlib import Path
        from control_tower.environments.docker_environment import make_environment_config_from_path

        some_env_config = make_environment_config_from_path(
            Path(__file__).parent, short_description="ours", tech_stack=["sh"], services=["app"]
        )
        """,
    )
    return folder


def write_setting(settings: Path, name: str, *env_names: str) -> Path:
    """A setting whose environments are its sub-folders."""
    folder = settings / name
    write(
        folder / "setting.py",
        """
        from pathlib import Path
        from control_tower.settings.discovery import discover_envs_from_subdirs

        def get_environments():
            return discover_envs_from_subdirs(Path(__file__).parent)
        """,
    )
    for env_name in env_names:
        env = write_env(folder / env_name)
        write_main(env, "build")
        write_side(env, "leak")
    return folder


def in_sample(
    body: Callable[[], Awaitable[Any]],
    *,
    sandbox: str | None = "local",
    metadata: dict[str, Any] | None = None,
) -> Any:
    """What `body` returns inside a running sample; what it raises is raised."""
    outcome: list[Any] = []

    @solver
    def call():
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            try:
                outcome.append((await body(), None))
            except Exception as error:  # noqa: BLE001 - handed to the test
                outcome.append((None, error))
            return state

        return solve

    task = Task(dataset=[Sample(id="s", input="", metadata=metadata)], solver=call(), sandbox=sandbox)
    log = eval(task, model="mockllm/model", display="none", log_format="eval", score=False)[0]
    if not outcome:
        raise RuntimeError(f"the sample did not start: {log.error or log.samples}")
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


class FolderSandbox(SandboxEnvironment):
    """A machine that is a folder: paths are below it and commands run there, without isolation."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.commands: list[list[str]] = []

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        self.commands.append(cmd)
        with anyio.fail_after(timeout):
            done = await anyio.run_process(cmd, cwd=self._place(cwd or "."), env=env, check=False)
        out, err = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
        return ExecResult(done.returncode == 0, done.returncode, out, err)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        place = self._place(file)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(contents.encode() if isinstance(contents, str) else contents)

    async def read_file(self, file: str, text: bool = True) -> Any:
        data = self._place(file).read_bytes()
        return data.decode() if text else data

    @classmethod
    async def sample_cleanup(cls, *args: Any, **kwargs: Any) -> None:
        pass

    def _place(self, path: str) -> Path:
        return Path(path) if path.startswith("/tmp/") else self.folder / path.lstrip("/")
