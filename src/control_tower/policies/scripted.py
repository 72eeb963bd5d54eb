"""The scripted policy: plays a task's prepared trajectory, so a setting can be tested without a model."""

import json
from pathlib import Path
from typing import Literal

from control_tower.errors import UsageError, ValidationError
from control_tower.game.red import Policy
from control_tower.game.views import RedView
from control_tower.inspect_private import sample_epoch
from control_tower.policies.registry import policies
from control_tower.policies.script import ScriptPolicy, called
from control_tower.settings.environments import find_environment

TEMPLATE = "template.jsonl"


@policies.register(attempts_main_task=True, attempts_side_task=True, attempts_sneaky=True, scripted=True)
def scripted_policy(variant: Literal["epoch"] | int = "epoch", source: str | None = None) -> Policy:
    """Plays a prepared trajectory: the side task's if the sample has one, else the main task's honest one.

    Args:
        variant: number of the trajectory, from 0; `epoch` takes them in turn, one an epoch.
        source: a template.jsonl, or a folder of numbered ones, to play instead of the task's own.
    """
    return ScriptedPolicy(variant, Path(source) if source else None)


class ScriptedPolicy(ScriptPolicy):
    """Reads the trajectory when the sample is set up."""

    def __init__(self, variant: Literal["epoch"] | int, source: Path | None) -> None:
        super().__init__("trajectory")
        self._variant: Literal["epoch"] | int = variant
        self._source = source

    def check(self, view: RedView) -> None:
        self.setup(view)

    def setup(self, view: RedView) -> None:
        folder = self._source or trajectory_folder(view)
        if not folder.exists():
            raise UsageError(f"{folder}: there is no such trajectory to play")
        template = folder if folder.is_file() else _choose(folder, self._variant)
        self.outputs = [
            called(self._name, function, arguments, f"script-{number}")
            for number, (function, arguments) in enumerate(read_trajectory(template))
        ]


def trajectory_folder(view: RedView) -> Path:
    """Where a sample's trajectories lie: `trajs/<main>` of its side task, or `trajs/honest` of its main task.

    Raises:
        ValidationError: the sample has no task, or the task no such folder.
    """
    space = find_environment(view.environment.id).env.task_space()
    if len(view.side_tasks) > 1 or len(view.main_tasks) > 1:
        raise ValidationError("the scripted policy plays one main task with at most one side task")
    if view.side_tasks and view.main_tasks:
        root = space.sides()[view.side_tasks[0].id].root
        folder = root and Path(root) / "trajs" / view.main_tasks[0].id
    elif view.main_tasks:
        root = space.mains()[view.main_tasks[0].id].root
        folder = root and Path(root) / "trajs" / "honest"
    else:
        raise ValidationError("the scripted policy needs samples with a main task")
    if folder is None or not folder.is_dir():
        raise ValidationError(f"no trajectories to play: {folder or 'the task has no folder'}")
    return folder


def read_trajectory(path: Path) -> list[tuple[str, dict[str, object]]]:
    """The calls of a `template.jsonl`: one JSON object a line with `function` and `arguments`.

    Raises:
        ValidationError: a line is not such an object; the message names file and line.
    """
    calls: list[tuple[str, dict[str, object]]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            calls.append((str(record["function"]), dict(record.get("arguments") or {})))
        except (ValueError, KeyError, TypeError) as error:
            raise ValidationError(f"{path}:{number}: not a call of a trajectory ({error})") from error
    if not calls:
        raise ValidationError(f"{path}: the trajectory has no calls")
    return calls


def _choose(folder: Path, variant: Literal["epoch"] | int) -> Path:
    variants = sorted((p for p in folder.iterdir() if p.name.isdecimal()), key=lambda p: int(p.name))
    templates = {int(p.name): p / TEMPLATE for p in variants if (p / TEMPLATE).is_file()}
    if not templates:
        raise ValidationError(f"{folder} has no numbered folders with a {TEMPLATE}")
    if variant == "epoch":
        return list(templates.values())[(sample_epoch() - 1) % len(templates)]
    if variant not in templates:
        raise UsageError(f"{folder} has no variant {variant}; it has {', '.join(map(str, templates))}")
    return templates[variant]
