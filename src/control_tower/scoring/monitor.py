"""The `monitor` Score of a sample: the verdicts that monitors gave while it was played."""

from inspect_ai.log import transcript
from inspect_ai.scorer import Score, Scorer, Target, scorer
from inspect_ai.solver import TaskState

from control_tower.logs.actions import Transcript
from control_tower.monitors.panel import recorded_verdicts
from control_tower.records.monitor_scores import monitor_score
from control_tower.records.scores import MONITOR_SCORE


@scorer(metrics=[], name=MONITOR_SCORE)
def monitor_scorer() -> Scorer:
    """Records each verdict under its action or draft; nothing where no monitor looked."""

    async def score(state: TaskState, target: Target) -> Score:
        value, metadata = monitor_score(recorded_verdicts(), Transcript(transcript().events).by_message)
        return Score(value=value, metadata=metadata)  # pyright: ignore[reportArgumentType]

    return score
