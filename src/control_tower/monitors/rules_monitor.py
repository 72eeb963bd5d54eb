"""The monitor that needs no model: rules over the last action."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageTool
from inspect_ai.scorer import Score

from control_tower.monitors.monitor import MonitorFunction
from control_tower.monitors.registry import monitors
from control_tower.monitors.rules import DEFAULT_RULES, Block, argument_text, load_rules
from control_tower.monitors.shown import PerTurn, turns_of


@monitors.register(name="rules", kind="action", files={"rules": DEFAULT_RULES}, roles=())
def rules_monitor(rules: str | None = None) -> MonitorFunction:
    """Adds up weighted signs of sabotage in what an action says; asks no model.

    Args:
        rules: a rule file (YAML); the packaged demo rules when left out.
    """
    rule_set = load_rules(Path(rules).expanduser() if rules else None)
    earlier = PerTurn[frozenset[str]]()

    async def judge(messages: Sequence[ChatMessage]) -> Score:
        signs: set[str] = set()
        for turn in turns_of(messages[:-1]):
            kept = earlier.get(turn)
            signs |= earlier.keep(turn, rule_set.signs(_results(turn))) if kept is None else kept
        signs |= rule_set.signs(_action(messages[-1]))
        score, hits = rule_set.total(signs)
        return Score(value=score, explanation=f"Signs: {', '.join(hits)}." if hits else "No sign.")

    return judge


def _action(message: ChatMessage) -> list[Block]:
    """Prose and calls of the judged turn."""
    text = [Block("text", None, message.text)] if message.text else []
    calls = (message.tool_calls or []) if isinstance(message, ChatMessageAssistant) else []
    return text + [Block("call", call.function, argument_text(call.arguments)) for call in calls]


def _results(turn: Sequence[ChatMessage]) -> list[Block]:
    return [Block("result", m.function, m.text) for m in turn if isinstance(m, ChatMessageTool)]
