"""Which engine a backend of job.toml is: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from elasticd.core.context import Context
from elasticd.core.engines.port import LeaderEngine, MemberEngine
from elasticd.core.engines.ring import RingLeader, RingMember
from elasticd.core.engines.spares import SpareReducers
from elasticd.core.words.engines import EngineToLeader
from elasticd.core.words.records import World
from elasticd.settings.job import WorldSettings
from elasticd.types import Backend, Secret


def leader_engine(backend: Backend, ctx: Context, world: World) -> LeaderEngine:
    """The leader's side, for a world that is to form."""
    match backend:
        case "ring":
            return RingLeader(ctx, world)
        case _:
            assert_never(backend)


def member_engine(
    settings: WorldSettings,
    ctx: Context,
    reducers: SpareReducers,
    tell: Callable[[EngineToLeader], None],
    world: World,
    secret: Secret,
) -> MemberEngine | None:
    """This node's side in a world of which it is a member; a world of one has no engine."""
    rank = world.members.index(ctx.me)
    if len(world.members) == 1:
        return None
    match settings.backend:
        case "ring":
            deadline = ctx.now + ctx.timing.form_seconds
            reduction = settings.reduction
            return RingMember(ctx, reducers, tell, world, rank, reduction, deadline, secret)
        case _:
            assert_never(settings.backend)
