"""Refusals of the service; the web application gives each its status."""

from __future__ import annotations

from control_tower.errors import StateError, ValidationError


class BadRequest(ValidationError):
    """What was asked cannot be meant; status 400."""


class NotFound(StateError):
    """There is no such thing for this user; status 404."""


class Conflict(StateError):
    """Something else of this name is there; status 409."""


class Forbidden(StateError):
    """The user may not do this; status 403."""


class NotAuthenticated(StateError):
    """There is no valid token or session; status 401."""


class Stale(StateError):
    """It was changed by someone else since it was read; status 412."""


class TooMany(StateError):
    """Asked too often; status 429."""

    def __init__(self, message: str, retry_after: float) -> None:
        """Refuses for a while.

        Args:
            message: What was asked too often.
            retry_after: Seconds until it may be asked again.
        """
        super().__init__(message)
        self.retry_after = retry_after
