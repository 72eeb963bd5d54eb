"""Deferral: in place of a suspicious action the trusted model takes one."""

from inspect_ai.model import ChatMessageAssistant

from control_tower.game.blue import DEFERRED_FROM, Protocol
from control_tower.game.views import BlueView
from control_tower.models.roles import TRUSTED
from control_tower.monitors.config import MAX, Combine, MonitorList
from control_tower.protocols.checks import check_audit_threshold
from control_tower.protocols.harness import PLAIN, HarnessArg
from control_tower.protocols.monitored import BLOCK_MESSAGE, OnUnscored, Oversight
from control_tower.protocols.registry import protocols
from control_tower.protocols.replacing import Replacing
from control_tower.protocols.trusted_model import ask_trusted


@protocols.register(name="defer-to-trusted", roles=(TRUSTED,))
def defer_to_trusted_protocol(
    monitors: MonitorList,
    combine: Combine = MAX,
    defer_threshold: float | None = None,
    audit_threshold: float | None = None,
    on_unscored: OnUnscored = "error",
    block_message: str = BLOCK_MESSAGE,
    harness: HarnessArg = PLAIN,
) -> Protocol:
    """Lets the trusted model act in place of suspicious actions; more suspicious ones are audited.

    Args:
        monitors: who judges each action: prompts, presets or factories.
        combine: the score reducer that makes one number of all verdicts.
        defer_threshold: an action of at least this suspicion (0-100) is replaced by the trusted model's.
        audit_threshold: an action of at least this suspicion is audited instead.
        on_unscored: what happens to an action that no monitor could score: error, block, audit or run.
        block_message: what the model reads in place of a call's result when the trusted model gives none.
        harness: the loop that plays.
    """
    check_audit_threshold("defer_threshold", defer_threshold, audit_threshold)
    oversight = Oversight(monitors, combine, on_unscored, block_message, harness)
    return DeferToTrusted(oversight, defer_threshold, audit_threshold)


class DeferToTrusted(Replacing):
    """The trusted model is asked what the untrusted one was."""

    async def replace(
        self, view: BlueView, draft: ChatMessageAssistant, suspicion: float
    ) -> ChatMessageAssistant:
        turn = await ask_trusted(view)
        if turn.problem:
            return self.blocked_since(turn.problem, draft, suspicion)
        self.note({"monitored": suspicion, "deferred": True})
        return self.instead(draft, turn.message, DEFERRED_FROM)
