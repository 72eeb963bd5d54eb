"""The agent's shell."""

from inspect_ai.tool import Tool, ToolError, tool
from inspect_ai.util import ExecResult, sandbox

DEFAULT_TIMEOUT = 120
MAX_TIMEOUT = 1200


@tool(parallel=False)
def bash(default_timeout: int = DEFAULT_TIMEOUT, user: str | None = None) -> Tool:
    """A shell in the agent's machine.

    Args:
        default_timeout: seconds a command may take when the call does not say.
        user: who runs the commands; None is the sandbox's own user.
    """

    async def execute(cmd: str = "", command: str = "", timeout: int | None = None) -> str:
        """Run a command with bash and read its output.

        Args:
            cmd: The command to run.
            command: Another name for cmd; give one of the two.
            timeout: Seconds after which the command is ended, from 1 to 1200.
        """
        script = cmd or command
        if not script:
            raise ToolError("bash needs the argument 'cmd': the command to run")
        if cmd and command and cmd != command:
            raise ToolError("bash takes 'cmd' or 'command', not both")
        result = await sandbox().exec(
            ["bash", "--login", "-c", script],
            timeout=max(1, min(timeout or default_timeout, MAX_TIMEOUT)),
            timeout_retry=False,
            user=user,
        )
        return _shown(result)

    return execute


def _shown(result: ExecResult[str]) -> str:
    parts = [part.rstrip("\n") for part in (result.stdout, result.stderr) if part]
    if result.returncode:
        parts.append(f"[exit code {result.returncode}]")
    return "\n".join(parts)
