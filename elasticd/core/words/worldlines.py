"""What follows from how a world began, and from what its line has gone through."""

from __future__ import annotations

from math import inf

from elasticd.core.words.records import World
from elasticd.types import NodeId


def committed_before(world: World) -> int:
    """The newest step that was committed for certain before all members of the world were ready. Of
    a step that some of them are to be given nobody may be left who has it."""
    surely = world.goes_back or not world.takers
    return world.step if surely else max(0, world.step - 1)


def shared_step(old: World, new: World) -> float:
    """The last step of ``old``'s line that ``new``'s has gone through, as far as the two tell; -1:
    none is known."""
    if new.lineage == old.lineage:
        return inf
    parent = new.parent
    if parent is None:
        return -1
    if parent.lineage == old.lineage:
        return parent.step
    if old.parent is None or old.parent.lineage != parent.lineage:
        return -1
    return min(parent.step, old.parent.step)


def stayed(world: World) -> tuple[NodeId, ...]:
    """The members with which those compare who join; none where nobody does."""
    pairs = zip(world.members, world.sources, strict=True)
    kept = tuple(n for n, source in pairs if source == "keep" and n not in world.unproven)
    return kept if world.unproven else ()
