"""How scorers and snapshots say that something went wrong, and whose fault it may be."""


class EnvironmentNotReady(Exception):
    """The infrastructure failed, not the agent: the task stays unscored.

    Never raise it for anything that the agent could have caused.
    """


class CaptureFailed(Exception):
    """The agent's files could not be taken out, which the agent may have caused: nothing is unscored."""


def require_env(condition: object, reason: str) -> None:
    """Go on only if the environment is as it must be.

    Raises:
        EnvironmentNotReady: `condition` is false.
    """
    if not condition:
        raise EnvironmentNotReady(reason)
