"""One sample in which nothing runs: its tools answer from the recording, and leaving it ends the play."""

from collections.abc import Callable

from inspect_ai.log import transcript
from inspect_ai.model import ChatMessageAssistant
from inspect_ai.solver import TaskState

from control_tower.game.play import OUTCOME, GameTools, Play
from control_tower.logs.recordings import Recording
from control_tower.logs.tool_names import SUBMIT, is_submission_tool
from control_tower.sandbox.replay import Now, OutputServer, ReplayDiverged
from control_tower.scoring.carried import DIVERGED, SERVED

OUTCOME_DIVERGED = "diverged"

MakeTools = Callable[[Callable[[], int]], GameTools]


class ServedSample:
    """Serves a recording to the play of one sample.

    Args:
        state: the sample.
        recording: what was played before.
    """

    def __init__(self, state: TaskState, recording: Recording) -> None:
        self._state = state
        self._server = OutputServer(str(state.sample_id), recording, self._now)
        self._play: Play | None = None
        self._step: Callable[[], int] = lambda: 0

    def tools(self, make: MakeTools) -> MakeTools:
        """The sample's tools, of which those that would act in the sandbox are served."""

        def served(step: Callable[[], int]) -> GameTools:
            self._step = step
            tools = make(step)
            public = [
                tool if tool.name == SUBMIT or is_submission_tool(tool.name) else self._server.serve(tool)
                for tool in tools.public
            ]
            return GameTools(public, tools.private)

        return served

    async def after_action(self, last_ran: int) -> None:
        """Compare an action none of whose calls asked for an output, such as a refused one."""
        self._server.check()

    async def run(self, play: Play) -> None:
        """Play to the end, or to where the play leaves its recording; which of the two is recorded."""
        self._play = play
        metadata = self._state.metadata
        metadata[SERVED] = "part"
        try:
            finish = await play.run()
            if finish == "submitted":
                self._server.check()
        except ReplayDiverged as diverged:
            metadata.update(
                {
                    OUTCOME: OUTCOME_DIVERGED,
                    DIVERGED: str(diverged),
                }
            )
            transcript().info({"diverged": diverged.divergence.as_json()}, source="eval")
            self._state.completed = True
            return
        actions = play.ledger.actions - (finish == "audited")
        if self._server.complete(actions, submitted=finish == "submitted"):
            metadata[SERVED] = "all"

    def _now(self) -> Now:
        if self._play is None:
            raise RuntimeError("nothing is served before the play")
        ledger = self._play.ledger
        turn = next(m for m in reversed(ledger.history) if isinstance(m, ChatMessageAssistant))
        return Now(self._step(), ledger.actions - 1, turn)
