"""The `replay` sandbox, in which nothing runs: recorded outputs are served as long as the play follows them.

The sandbox itself refuses everything. What a tool answers is decided a layer above: `OutputServer` puts
itself in the place of each tool and hands out what the recording holds, after it has compared the whole
turn with the recorded one. A turn that is another ends the play with `ReplayDiverged`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from inspect_ai.model import ChatMessageAssistant, ChatMessageTool
from inspect_ai.tool import ToolDef, ToolError, ToolResult
from inspect_ai.util import (
    ExecResult,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    sandboxenv,
)
from typing_extensions import override

from control_tower.errors import OperationError, StateError
from control_tower.inspect_private import tool_timeout
from control_tower.logs.divergence import Divergence, first_difference
from control_tower.logs.json_text import JsonObject
from control_tower.logs.recordings import RecordedCall, Recording
from control_tower.logs.tool_names import AUDITED, bare_name

REPLAY = "replay"
"""The sandbox type."""


@sandboxenv(name=REPLAY)  # pyright: ignore[reportUntypedClassDecorator]
class ReplaySandbox(SandboxEnvironment):
    """A machine that is not there."""

    @override
    async def exec(self, cmd: list[str], *args: Any, **kwargs: Any) -> ExecResult[str]:
        _refuse(f"run {cmd[0] if cmd else 'a command'}")

    @override
    async def write_file(self, file: str, contents: str | bytes) -> None:
        _refuse(f"write {file}")

    @override
    async def read_file(self, file: str, text: bool = True) -> Any:
        _refuse(f"read {file}")

    @override
    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        return {"default": cls()}

    @override
    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """There is nothing to end."""


def _refuse(what: str) -> NoReturn:
    raise StateError(f"cannot {what}: in the replay sandbox nothing runs, it only serves recorded outputs")


class ReplayDiverged(OperationError):
    """The play did something else than its recording.

    Args:
        sample: its id.
        divergence: where, and what it did.
    """

    def __init__(self, sample: str, divergence: Divergence) -> None:
        super().__init__(f"{sample} left its recording at {divergence}")
        self.divergence = divergence


@dataclass(frozen=True)
class Now:
    """Where a play stands: the turn that was just decided."""

    step: int
    action: int
    turn: ChatMessageAssistant


class OutputServer:
    """Answers the calls of one sample from its recording.

    Args:
        sample: the sample's id, for messages.
        recording: what was played before.
        now: where the play stands.
    """

    def __init__(self, sample: str, recording: Recording, now: Callable[[], Now]) -> None:
        self._sample = sample
        self._recorded = [turn.calls for turn in recording.turns if turn.calls]
        self._submitted = recording.submitted
        self._now = now
        self._checked = -1
        self._left: list[RecordedCall] = []

    def serve(self, tool: ToolDef) -> ToolDef:
        """The tool as it looks, answering from the recording."""

        async def execute(**kwargs: Any) -> ToolResult:
            self.check()
            return _answer(self._take(tool.name, kwargs))

        return ToolDef(
            execute,
            name=tool.name,
            description=tool.description,
            parameters=tool.parameters,
            parallel=False,
            max_output=0,
        )

    def check(self) -> None:
        """Compare the turn that was decided with the recorded one.

        Raises:
            ReplayDiverged: a call is another than the recorded one, was refused, or is missing.
        """
        now = self._now()
        if now.action == self._checked:
            return
        calls = now.turn.tool_calls or []
        if calls and all(call.function == AUDITED for call in calls):
            return
        recorded = self._recorded[now.action] if now.action < len(self._recorded) else ()
        made = [(bare_name(call.function), call.arguments) for call in calls]
        if difference := first_difference([call.what for call in recorded], made):
            raise ReplayDiverged(self._sample, Divergence(now.step, now.action, *difference))
        self._checked = now.action
        self._left = list(recorded)

    def complete(self, actions: int, *, submitted: bool) -> bool:
        """Whether the play that ended was the recorded one from beginning to end.

        Args:
            actions: how many actions were decided, audited ones not counted.
            submitted: whether a submit ended it.
        """
        return actions == len(self._recorded) and submitted == self._submitted

    def _take(self, function: str, arguments: JsonObject) -> RecordedCall:
        same = [call for call in self._left if call.function == bare_name(function)]
        call = next((call for call in same if call.arguments == arguments), same[0])
        self._left.remove(call)
        return call


def _answer(call: RecordedCall) -> ToolResult:
    if call.error is not None:
        message = str(call.error.get("message"))
        if call.error.get("type") == "timeout":
            raise tool_timeout(message, call.result if isinstance(call.result, str) else None)
        raise ToolError(message)
    if isinstance(call.result, str | int | float | bool):
        return call.result
    # Images and other content parts.
    return cast(ToolResult, ChatMessageTool(content=call.result).content)
