"""What deferring and editing share: audits first, then a replacement, else the draft is blocked."""

from inspect_ai.model import ChatMessageAssistant

from control_tower.game.blue import Audited, Decision
from control_tower.game.views import BlueView
from control_tower.protocols.monitored import Monitored, Oversight


class Replacing(Monitored):
    """Replaces what reaches one threshold and audits what reaches a higher one."""

    def __init__(
        self, oversight: Oversight, replace_threshold: float | None, audit_threshold: float | None
    ) -> None:
        super().__init__(oversight)
        self._replace_threshold = replace_threshold
        self._audit_threshold = audit_threshold

    async def decide(self, view: BlueView, draft: ChatMessageAssistant, suspicion: float) -> Decision:
        if self._audit_threshold is not None and suspicion >= self._audit_threshold:
            self.note({"monitored": suspicion})
            return Audited(draft)
        if self._replace_threshold is None or suspicion < self._replace_threshold:
            self.note({"monitored": suspicion})
            return draft
        return await self.replace(view, draft, suspicion)

    async def replace(
        self, view: BlueView, draft: ChatMessageAssistant, suspicion: float
    ) -> ChatMessageAssistant:
        """The turn that runs instead."""
        raise NotImplementedError

    def blocked_since(
        self, problem: str, draft: ChatMessageAssistant, suspicion: float
    ) -> ChatMessageAssistant:
        """The draft, blocked since there is nothing to replace it with."""
        self.note({"monitored": suspicion, "blocked": True})
        self.note({"not_replaced": problem})
        return self.blocked(draft)

    def instead(
        self, draft: ChatMessageAssistant, turn: ChatMessageAssistant, key: str
    ) -> ChatMessageAssistant:
        """The turn as the draft's replacement: it says so, and has the draft's verdicts."""
        self.panel.copy_verdicts(str(draft.id), str(turn.id))
        return turn.model_copy(update={"metadata": {**(turn.metadata or {}), key: draft.id}})
