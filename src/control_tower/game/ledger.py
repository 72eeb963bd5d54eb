"""The incremental record of one sample's play: decided turns, what ran of them, and what is public."""

import time
from bisect import bisect_right
from dataclasses import dataclass, field

from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageTool

from control_tower.logs.tool_names import AUDITED, BLOCKED


@dataclass
class Ledger:
    """Grows by one turn at a time, so that no view is ever computed again from the start."""

    conversation: list[ChatMessage] = field(default_factory=list[ChatMessage])
    """What the untrusted model is shown: prompts, its turns and the results."""
    history: list[ChatMessage] = field(default_factory=list[ChatMessage])
    """The decided turns, each with the results of its calls: what blue may see of the past."""
    actions: int = 0
    """Decided turns with calls so far; the next action has this index."""
    last_ran: int = -1
    """Index of the last action of which a call really ran; -1 before the first."""
    started: list[float] = field(default_factory=list[float])
    """When each action's calls began, in epoch seconds."""

    def decided(self, message: ChatMessageAssistant) -> None:
        """A turn was decided; its calls, if any, are about to run."""
        shown = of_nobody(message)
        self.conversation.append(shown)
        self.history.append(shown)
        if message.tool_calls:
            self.actions += 1
            self.started.append(time.time())

    def action_at(self, when: float) -> int:
        """The last action that had begun at a time in epoch seconds; -1 before the first."""
        return bisect_right(self.started, when) - 1

    def ran(self, results: list[ChatMessage]) -> None:
        """Results of the latest action's calls."""
        self.conversation.extend(results)
        self.history.extend(results)
        if any(_really_ran(message) for message in results):
            self.last_ran = self.actions - 1

    def take_back(self, turn_length: int) -> None:
        """Hide the latest turn from the untrusted model: its message and results, `turn_length` in all.

        It stays a decided action, and blue still sees it.
        """
        del self.conversation[-turn_length:]

    def told(self, message: ChatMessage) -> None:
        """Something the engine says to the untrusted model."""
        self.conversation.append(message)


def of_nobody(message: ChatMessageAssistant) -> ChatMessageAssistant:
    """The turn without the name of the model that wrote it, by which blue could tell an attacker's turns."""
    return message.model_copy(update={"model": None, "source": None})


def _really_ran(message: ChatMessage) -> bool:
    return isinstance(message, ChatMessageTool) and message.function not in (BLOCKED, AUDITED)
