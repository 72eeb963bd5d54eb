"""A policy that plays the prepared trajectory in its first epoch and does something odd in each other one."""

import os
import signal
import sys
import time
from collections.abc import Sequence

import anyio
from inspect_ai.model import ChatMessage
from inspect_ai.tool import ToolInfo

from control_tower.game.red import Policy
from control_tower.game.views import RedView
from control_tower.inspect_private import sample_epoch
from control_tower.policies.registry import policies
from control_tower.policies.scripted import ScriptedPolicy

EPOCHS = ("plays", "raises", "exits", "killed", "blocks", "waits", "shows", "closes", "works", "floods")
SECRET = "ODD_API_KEY"


@policies.register(attempts_main_task=True, attempts_side_task=True, attempts_sneaky=True, scripted=True)
def odd() -> Policy:
    """Does what its epoch says."""
    return Odd("epoch", None)


class Odd(ScriptedPolicy):
    def setup(self, view: RedView) -> None:
        super().setup(view)
        match EPOCHS[sample_epoch() - 1]:
            case "raises":
                raise RuntimeError(f"ModuleNotFoundError: status 429 at {os.getpid()}")
            case "exits":
                os._exit(7)
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "blocks":
                time.sleep(3600)
            case "shows":
                print(dict(os.environ), file=sys.stderr)
                raise RuntimeError(f"key {os.environ[SECRET]} was refused")
            case "floods":
                print(os.environ[SECRET] * 4_000, end="", file=sys.stderr, flush=True)
                os._exit(7)
            case "works":
                while True:
                    pass
            case _:
                pass

    async def frame(
        self, input: Sequence[ChatMessage], private_tools: Sequence[ToolInfo]
    ) -> tuple[Sequence[ChatMessage], Sequence[ToolInfo]]:
        if EPOCHS[sample_epoch() - 1] == "waits":
            await anyio.sleep(3600)
        return await super().frame(input, private_tools)
