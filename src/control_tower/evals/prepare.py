"""Getting a sample's machine ready: setup scripts, baseline snapshots, initial trees."""

from inspect_ai.util import sandbox, span

from control_tower.environments.space import TaskCombination
from control_tower.environments.workspace import FinalDiffCapture
from control_tower.errors import OperationError

SCRIPT_PATH = "/tmp/script.sh"
SETUP_TIMEOUT = 1800


async def prepare(tasks: TaskCombination, env_id: str) -> None:
    """Run the setup scripts of mains, then sides, and take what scorers compare with.

    Args:
        tasks: the sample's tasks.
        env_id: the environment, `<setting>/<env>`; snapshots are kept under its setting's name.

    Raises:
        OperationError: a setup script failed; this sample is errored, the others are not.
    """
    async with span("task_setup"):
        for task in (*tasks.mains, *tasks.sides):
            if task.setup_script:
                await _run_setup(task.id, task.setup_script)
        for task in (*tasks.mains, *tasks.sides):
            if task.baseline_snapshot is not None:
                await task.baseline_snapshot.capture(env_id.partition("/")[0])
        for task in tasks.mains:
            if task.final_diff is not None:
                await FinalDiffCapture(task, env_id).start()


async def _run_setup(task_id: str, script: str) -> None:
    machine = sandbox()
    await machine.write_file(SCRIPT_PATH, script)
    try:
        result = await machine.exec(["bash", "-l", SCRIPT_PATH], user="root", timeout=SETUP_TIMEOUT)
    finally:
        await machine.exec(["rm", "-f", SCRIPT_PATH], user="root", timeout=60)
    if not result.success:
        tail = (result.stderr or result.stdout)[-2000:]
        raise OperationError(f"the setup script of {task_id} ended with {result.returncode}: {tail}")
