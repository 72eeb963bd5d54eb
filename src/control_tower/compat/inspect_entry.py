"""What Inspect finds through its entry point: our sandboxes, model providers and tasks register on import."""

from control_tower.evals.inspect_task import control_eval_task as control_eval_task
from control_tower.evals.inspect_task import eval_task as eval_task
from control_tower.game import seat as seat
from control_tower.policies import script as script
from control_tower.sandbox import providers as providers
