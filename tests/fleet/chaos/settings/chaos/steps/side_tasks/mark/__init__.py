from pathlib import Path

from control_tower.environments.loading import make_side_task_from_path

from .scorer import scorer

config = make_side_task_from_path(
    Path(__file__).parent, scorer=scorer, failure_type="live", task_category="data_tampering"
)
