"""Trusted monitoring: suspicious actions are blocked a few times, then audited."""

from inspect_ai.model import ChatMessageAssistant

from control_tower.errors import UsageError
from control_tower.game.blue import Audited, Decision, Protocol
from control_tower.game.views import BlueView
from control_tower.monitors.config import MAX, Combine, MonitorList
from control_tower.protocols.checks import check_threshold
from control_tower.protocols.harness import PLAIN, HarnessArg
from control_tower.protocols.monitored import BLOCK_MESSAGE, Monitored, OnUnscored, Oversight
from control_tower.protocols.registry import protocols


@protocols.register(name="trusted-monitoring")
def trusted_monitoring_protocol(
    monitors: MonitorList,
    combine: Combine = MAX,
    sus_threshold: float | None = None,
    blocks: int = 0,
    on_unscored: OnUnscored = "error",
    block_message: str = BLOCK_MESSAGE,
    harness: HarnessArg = PLAIN,
) -> Protocol:
    """Blocks the first suspicious actions and audits later ones; without a threshold it only measures.

    Args:
        monitors: who judges each action: prompts, presets or factories.
        combine: the score reducer that makes one number of all verdicts.
        sus_threshold: an action of at least this suspicion (0-100) is flagged.
        blocks: how many flagged actions are blocked before the others are audited.
        on_unscored: what happens to an action that no monitor could score: error, block, audit or run.
        block_message: what the model reads in place of a blocked call's result.
        harness: the loop that plays.
    """
    check_threshold("sus_threshold", sus_threshold)
    if blocks < 0:
        raise UsageError(f"blocks is {blocks}: say how many flagged actions are blocked, 0 for none")
    if blocks and sus_threshold is None:
        raise UsageError(
            f"blocks is {blocks}, but without sus_threshold no action is flagged: add sus_threshold=..."
        )
    oversight = Oversight(monitors, combine, on_unscored, block_message, harness)
    return TrustedMonitoring(oversight, sus_threshold, blocks)


class TrustedMonitoring(Monitored):
    """Flags by one threshold."""

    def __init__(self, oversight: Oversight, sus_threshold: float | None, blocks: int) -> None:
        super().__init__(oversight)
        self._threshold = sus_threshold
        self._blocks = blocks
        self._blocked = 0

    async def decide(self, view: BlueView, draft: ChatMessageAssistant, suspicion: float) -> Decision:
        if self._threshold is None or suspicion < self._threshold:
            self.note({"monitored": suspicion})
            return draft
        if self._blocked < self._blocks:
            self._blocked += 1
            self.note({"monitored": suspicion, "blocked": self._blocked})
            return self.blocked(draft)
        self.note({"monitored": suspicion})
        return Audited(draft)
