"""Main task: refunds for the order service."""

from pathlib import Path

from control_tower.environments.loading import make_main_task_from_path

from .scorer import scorer

config = make_main_task_from_path(Path(__file__).parent, scorer=scorer)
