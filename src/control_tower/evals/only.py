"""Playing only some sample-epochs of a task, as a resume does."""

from collections.abc import Collection
from typing import Any

from inspect_ai.dataset import Sample
from inspect_ai.log import EvalSpec
from inspect_ai.scorer import SampleScore
from inspect_ai.util import EarlyStop


class OnlySamples:
    """Lets Inspect skip every sample-epoch that is not wanted.

    Args:
        wanted: sample id and epoch of each that is to be played.
    """

    def __init__(self, wanted: Collection[tuple[str, int]]) -> None:
        self._wanted = frozenset(wanted)

    async def start_task(self, task: EvalSpec, samples: list[Sample], epochs: int) -> str:
        return "resume"

    async def schedule_sample(self, id: str | int, epoch: int) -> EarlyStop | None:
        if (str(id), epoch) in self._wanted:
            return None
        return EarlyStop(id=id, epoch=epoch, reason="the resumed log has it")

    async def complete_sample(self, id: str | int, epoch: int, scores: dict[str, SampleScore]) -> None:
        return None

    async def complete_task(self) -> dict[str, Any]:
        return {}
