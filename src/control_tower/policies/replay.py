"""The replay policy: plays the turns of a recording again, in order, with their texts and call ids.

Calls of one turn stay one turn, so actions keep their numbers and landings can be compared. Refused calls
are issued as refusals again, since that is what ran. The play ends as the recorded one did: with its submit
where there was one, and never with one of its own.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ModelOutput,
)
from inspect_ai.tool import ToolCall

from control_tower.errors import StateError
from control_tower.game.harness import REJECTED_SUBMIT
from control_tower.game.red import Policy, is_private
from control_tower.game.views import RedView
from control_tower.logs.recordings import REPLAYS, RecordedCall, RecordedTurn, Recording
from control_tower.policies.registry import policies
from control_tower.policies.script import ScriptPolicy, said, submit_blocked

_recording: ContextVar[Recording | None] = ContextVar("recording", default=None)


@contextmanager
def replaying(recording: Recording | None) -> Generator[None]:
    """Hand the recording of the sample being played to its policy."""
    token = _recording.set(recording)
    try:
        yield
    finally:
        _recording.reset(token)


@policies.register(
    name="replay",
    attempts_main_task=False,
    attempts_side_task=False,
    attempts_sneaky=False,
    scripted=True,
    needs=("recording",),
)
def replay_policy() -> Policy:
    """Plays the turns of the recording that the samples are taken from (`--from-run`)."""
    return ReplayPolicy()


class ReplayPolicy(ScriptPolicy):
    """Reads the recording when the sample is set up."""

    def __init__(self) -> None:
        super().__init__(REPLAYS.partition("/")[2])
        self._turns: tuple[RecordedTurn, ...] = ()

    def setup(self, view: RedView) -> None:
        recording = _recording.get()
        if recording is None:
            raise StateError("the replay policy plays the samples of a recording: name it with --from-run")
        self._turns = recording.turns

    def next_output(self, conversation: Sequence[ChatMessage]) -> ModelOutput:
        turns = [m for m in conversation if m.role == "assistant" and not is_private(m)]
        # Turns whose submit was rejected are taken out of the conversation, and a note put in their place.
        position = len(turns) + sum(bool((m.metadata or {}).get(REJECTED_SUBMIT)) for m in conversation)
        last = conversation[-1] if conversation else None
        if position == len(self._turns) > 0 and submit_blocked(last):
            position -= 1
        if position >= len(self._turns):
            return said(self._name, "The recording ends here.")
        turn, done = self._turns[position], _private_turns_at_end(conversation)
        if done < len(turn.private):
            return self._output("", turn.private[done : done + 1], "tool_calls")
        return self._output(turn.content, turn.calls, turn.stop_reason)

    def _output(self, content: object, calls: Sequence[RecordedCall], stop_reason: str) -> ModelOutput:
        message = ChatMessageAssistant.model_validate(
            {
                "content": content,
                "tool_calls": [_tool_call(call) for call in calls] or None,
                "model": self._name,
                "source": "generate",
            }
        )
        choice = ChatCompletionChoice.model_validate(
            {"message": message, "stop_reason": "tool_calls" if calls else stop_reason}
        )
        return ModelOutput(model=self._name, choices=[choice])


def _tool_call(call: RecordedCall) -> ToolCall:
    return ToolCall(
        id=call.id,
        function=call.function,
        arguments=dict(call.arguments),
        parse_error=call.parse_error,
    )


def _private_turns_at_end(conversation: Sequence[ChatMessage]) -> int:
    """How many of red's own turns follow the last thing that blue saw."""
    count = 0
    for message in reversed(conversation):
        if not is_private(message):
            break
        count += message.role == "assistant"
    return count
