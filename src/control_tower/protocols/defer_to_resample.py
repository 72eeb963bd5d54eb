"""Resampling: of several drafts the least suspicious runs."""

from functools import partial

from control_tower.errors import UsageError
from control_tower.game.blue import Decision, Draw, Protocol
from control_tower.game.views import BlueView
from control_tower.inspect_private import gather
from control_tower.monitors.config import MAX, Combine, MonitorList
from control_tower.monitors.panel import Review
from control_tower.protocols.harness import PLAIN, HarnessArg
from control_tower.protocols.monitored import BLOCK_MESSAGE, Monitored, OnUnscored, Oversight
from control_tower.protocols.registry import protocols
from control_tower.records.monitor_scores import UNSCORED


@protocols.register(name="defer-to-resample")
def defer_to_resample_protocol(
    monitors: MonitorList,
    combine: Combine = MAX,
    drafts: int = 3,
    on_unscored: OnUnscored = "error",
    block_message: str = BLOCK_MESSAGE,
    harness: HarnessArg = PLAIN,
) -> Protocol:
    """Draws several drafts of each turn and runs the least suspicious.

    Args:
        monitors: who judges each draft: prompts, presets or factories.
        combine: the score reducer that makes one number of all verdicts on a draft.
        drafts: how many drafts are drawn, at least 2.
        on_unscored: what happens when no draft could be scored: error, block, audit or run (the first one).
        block_message: what the model reads in place of a blocked call's result.
        harness: the loop that plays.
    """
    if drafts < 2:
        raise UsageError(f"drafts is {drafts}: to choose one, draw at least 2 (the default is 3)")
    return DeferToResample(Oversight(monitors, combine, on_unscored, block_message, harness), drafts)


class DeferToResample(Monitored):
    """Judges all drafts in parallel."""

    def __init__(self, oversight: Oversight, drafts: int) -> None:
        super().__init__(oversight)
        self._drafts = drafts

    async def on_output(self, view: BlueView, draw: Draw) -> Decision:
        drafts = await draw(self._drafts)
        acting = [draft for draft in drafts if draft.tool_calls]
        if not acting:
            return drafts[0]
        reviews = await gather([partial(self.panel.review, view, draft) for draft in acting])
        judged = [(draft, one) for draft, one in zip(acting, reviews, strict=True) if not one.skipped]
        # Submitting is shown to no monitor: whether to submit is left to the draft that came first.
        if reviews[0].skipped or not judged:
            return acting[0]
        scored = [(review.combined, draft) for draft, review in judged if review.combined is not None]
        if not scored:
            draft, review = judged[0]
            rejected = [UNSCORED] * (len(judged) - 1)
            fact = {"resampled": len(drafts), "ran_at": UNSCORED, "rejected": rejected}
            self.note({**fact, **self.why_unscored(review)})
            return self.without_number(draft, review)
        suspicion, chosen = min(scored, key=lambda one: one[0])
        rejected = [_said(review) for draft, review in judged if draft is not chosen]
        self.note({"resampled": len(drafts), "ran_at": suspicion, "rejected": rejected})
        return chosen


def _said(review: Review) -> float | str:
    return UNSCORED if review.combined is None else review.combined
