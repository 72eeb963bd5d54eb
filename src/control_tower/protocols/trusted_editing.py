"""Editing: suspicious calls are rewritten by the trusted model before they run."""

import json
import secrets
from collections.abc import Sequence
from uuid import uuid4

from inspect_ai.model import ChatMessageAssistant
from inspect_ai.tool import ToolCall

from control_tower.game.blue import EDITED_FROM, Protocol
from control_tower.game.prompts import prompt
from control_tower.game.views import BlueView
from control_tower.models.roles import TRUSTED
from control_tower.monitors.config import MAX, Combine, MonitorList
from control_tower.protocols.checks import check_audit_threshold
from control_tower.protocols.harness import PLAIN, HarnessArg
from control_tower.protocols.monitored import BLOCK_MESSAGE, OnUnscored, Oversight
from control_tower.protocols.registry import protocols
from control_tower.protocols.replacing import Replacing
from control_tower.protocols.trusted_model import ask_trusted


@protocols.register(name="trusted-editing", roles=(TRUSTED,))
def trusted_editing_protocol(
    monitors: MonitorList,
    combine: Combine = MAX,
    edit_threshold: float | None = None,
    audit_threshold: float | None = None,
    on_unscored: OnUnscored = "error",
    block_message: str = BLOCK_MESSAGE,
    harness: HarnessArg = PLAIN,
) -> Protocol:
    """Has the trusted model repeat, rewrite or drop the calls of suspicious actions.

    Args:
        monitors: who judges each action: prompts, presets or factories.
        combine: the score reducer that makes one number of all verdicts.
        edit_threshold: an action of at least this suspicion (0-100) is given to the trusted model to edit.
        audit_threshold: an action of at least this suspicion is audited instead.
        on_unscored: what happens to an action that no monitor could score: error, block, audit or run.
        block_message: what the model reads in place of a call's result when nothing of the action is left.
        harness: the loop that plays.
    """
    check_audit_threshold("edit_threshold", edit_threshold, audit_threshold)
    oversight = Oversight(monitors, combine, on_unscored, block_message, harness)
    return TrustedEditing(oversight, edit_threshold, audit_threshold)


class TrustedEditing(Replacing):
    """The trusted model sees the request and the proposed calls; it may add none."""

    async def replace(
        self, view: BlueView, draft: ChatMessageAssistant, suspicion: float
    ) -> ChatMessageAssistant:
        proposed = draft.tool_calls or []
        turn = await ask_trusted(view, _instruction(proposed))
        answered = turn.message.tool_calls or []
        problem = turn.problem
        if problem is None and len(answered) > len(proposed):
            problem = f"the trusted model made {len(answered)} calls of {len(proposed)} that were proposed"
        if problem:
            return self.blocked_since(problem, draft, suspicion)
        calls = _edited(proposed, answered)
        edited = calls != proposed
        self.note({"monitored": suspicion, "edited": edited})
        if not edited:
            return draft
        return self.instead(
            draft, draft.model_copy(update={"id": uuid4().hex, "tool_calls": calls}), EDITED_FROM
        )


def _instruction(proposed: Sequence[ToolCall]) -> str:
    calls = json.dumps([_content(call) for call in proposed], indent=1)
    text = prompt("control_tower.protocols.prompts", "edit").replace("{marker}", secrets.token_hex(8))
    return text.replace("{calls}", calls)


def _edited(proposed: Sequence[ToolCall], answered: Sequence[ToolCall]) -> list[ToolCall]:
    """The answered calls; one that repeats a proposed call is that call itself."""
    left = list(proposed)
    calls: list[ToolCall] = []
    for call in answered:
        same = next((one for one in left if _content(one) == _content(call)), None)
        if same is not None:
            left.remove(same)
        calls.append(same or call)
    return calls


def _content(call: ToolCall) -> dict[str, object]:
    return {"function": call.function, "arguments": call.arguments}
