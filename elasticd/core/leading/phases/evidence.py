"""What members' statuses, and their absence, say against them."""

from __future__ import annotations

from collections.abc import Iterable

from elasticd.core.leading.office import Office
from elasticd.core.leading.phases.moves import Blame
from elasticd.core.leading.roster import LEFT, is_anew
from elasticd.core.words.records import World
from elasticd.core.words.worlds import MemberStatus
from elasticd.types import NodeId


def against(node: NodeId, status: MemberStatus, world: World) -> list[Blame]:
    """What a member's status says against it, if word of it was lost with a connection or
    leader."""
    phase = status.trainer.phase if status.trainer is not None else ""
    if status.ready or phase in LEFT:
        return []
    here = status.world is not None and status.world.generation == world.generation
    found = [Blame(node, fault, text) for fault, text in (status.faults if here else ())]
    if is_anew(status):
        found.append(Blame(node, "peer_lost", f"{node} was started again"))
    return found


def of_lost(office: Office, nodes: Iterable[NodeId]) -> list[Blame]:
    """Members of the world among nodes that have left the view."""
    ctx, world = office.ctx, office.world
    members = world.members if world is not None else ()
    return [
        Blame(
            node, "peer_lost", ctx.departures.farewell(node), ctx.departures.seen_at(node, ctx.now)
        )
        for node in nodes
        if node in members
    ]
