"""Who asks, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["reader", "member", "maintainer", "admin"]
Scope = Literal["runs:read", "runs:write", "admin"]

SCOPES: dict[Role, frozenset[Scope]] = {
    "reader": frozenset({"runs:read"}),
    "member": frozenset({"runs:read", "runs:write"}),
    "maintainer": frozenset({"runs:read", "runs:write"}),
    "admin": frozenset({"runs:read", "runs:write", "admin"}),
}
"""What each role may ask for at most."""


@dataclass(frozen=True)
class Actor:
    """A user, by one token or session."""

    user_id: str
    name: str
    role: Role
    scopes: frozenset[Scope]
    """Those of the token, never more than the role's."""
    token_id: str | None = None
    """Public id of the token; None for a session."""
    expires: str | None = None
    """When the token ends, RFC 3339; None is never, or a session."""

    def may(self, scope: Scope) -> bool:
        """Whether it may do what a scope names."""
        return scope in self.scopes

    def may_edit(self, owner_id: str) -> bool:
        """Whether it may change or delete what a user has made: its own, or all for those who maintain."""
        return self.may("runs:write") and (self.user_id == owner_id or self.role in ("maintainer", "admin"))
