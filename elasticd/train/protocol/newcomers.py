"""Who shows what in the first step of a world in which somebody joins."""

from __future__ import annotations

from elasticd.train.world import TrainerWorld
from elasticd.types import ProofPart


def joins(world: TrainerWorld) -> bool:
    """Whether this member has to show that it computes what the others do, and waits for that."""
    return world.rank in world.newcomers.ranks


def shows(world: TrainerWorld, part: ProofPart, step: int) -> bool:
    """Whether this member shows what it comes to in ``step``. One that has stayed computes a grain
    for all newcomers. What the body leaves all show: what differs between those that have stayed is
    no newcomer's fault."""
    if not world.newcomers.ranks or step != world.point.step + 1:
        return False
    return part == "body" or joins(world) or world.rank == world.newcomers.keeper


def shown_grain(world: TrainerWorld) -> int:
    """The grain that all compute who show one: of the keeper's share, if it has any."""
    share = world.shares_now[world.newcomers.keeper]
    return share[0][0] if share else 0
