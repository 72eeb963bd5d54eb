"""What endpoints depend on: who asks, what they may do, and that they do not ask too often."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, cast

from fastapi import Depends, Request

from control_tower.agent_runs.actor import Actor
from control_tower.agent_runs.actor import Scope as Right
from control_tower.agent_runs.errors import Forbidden, NotAuthenticated
from control_tower.viewer.auth.actor import address, current_actor, site_of
from control_tower.viewer.limits import HEAVY, READS, STRANGERS, WRITES, Limits, Pace


def limits_of(request: Request) -> Limits:
    """What was asked of this application lately."""
    return cast(Limits, request.app.state.limits)


def _who_may(right: Right | None, pace: Pace) -> Callable[[Request], Awaitable[Actor]]:
    async def who(request: Request) -> Actor:
        shared = site_of(request).settings.mode != "local"
        try:
            actor = await current_actor(request)
        except NotAuthenticated:
            await limits_of(request).keep(STRANGERS, address(request))
            raise
        request.state.user = actor.name
        if right and not actor.may(right):
            raise Forbidden(f"{actor.name} may not do this here: it needs the scope {right}")
        if shared:
            await limits_of(request).keep(pace, actor.token_id or actor.user_id)
        return actor

    return who


Someone = Annotated[Actor, Depends(_who_may(None, READS))]
Reader = Annotated[Actor, Depends(_who_may("runs:read", READS))]
HeavyReader = Annotated[Actor, Depends(_who_may("runs:read", HEAVY))]
Writer = Annotated[Actor, Depends(_who_may("runs:write", WRITES))]
Uploader = Annotated[Actor, Depends(_who_may("runs:write", READS))]
admin_of = _who_may("admin", READS)
Admin = Annotated[Actor, Depends(admin_of)]
