"""What must hold of the protocol itself: order of messages, durability, unique numbers.

Nothing here is told by the code under test: journals are looked at on the simulated disks, messages
when they leave a node and when they enter one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from elasticd.core.words.messages import Message
from elasticd.core.words.records import View, World
from elasticd.core.words.tables import JobsKept
from elasticd.core.words.views import Heartbeat, ViewAck
from elasticd.core.words.worlds import MemberStatus, Ready
from elasticd.types import NO_TAG, NodeId, Tag

from .disk import Disk
from .releases import Release

_MAX_IN_FLIGHT = 20_000
"""Messages between two runs of daemons of which one has gone are forgotten above this number."""


@dataclass(slots=True)
class Order:
    """Between two runs of daemons every message arrives once, and in the order of sending.

    Some may be missing where a session gave up, but nothing comes twice or before its turn.
    """

    flights: dict[tuple[str, str], deque[Message]] = field(default_factory=dict)

    def sent(self, sender: str, to: str, message: Message) -> None:
        flight = self.flights.setdefault((sender, to), deque(maxlen=_MAX_IN_FLIGHT))
        flight.append(message)

    def received(self, sender: str, to: str, message: Message) -> str:
        """Why this message must not come now, or nothing."""
        flight = self.flights.get((sender, to), deque())
        while flight:
            if (candidate := flight.popleft()) is message or candidate == message:
                return ""
        return f"{to} gets {type(message).__name__} of {sender} twice, late, or never sent"


@dataclass(slots=True)
class Views:
    """A view is formed only of nodes that all have promised it, durably, and nothing later."""

    members: dict[Tag, tuple[NodeId, ...]] = field(default_factory=dict)

    def promised(self, node: NodeId, epoch: Tag, disk: Disk) -> str:
        before = disk.newest_promise
        if before is not None and before >= epoch:
            return f"{node} promises {epoch} after {before}"
        return ""

    def formed(self, node: NodeId, view: View, disks: dict[NodeId, Disk]) -> str:
        known = self.members.setdefault(view.epoch, view.members)
        if known != view.members:
            return f"epoch {view.epoch} names both {known} and {view.members}"
        for member in view.members:
            if view.epoch not in disks[member].promised:
                return f"{node} forms the view {view.epoch}, which {member} has not promised"
        for voter in view.voters if view.primary else ():
            if view.epoch not in disks[voter].attempted:
                return f"{node} forms the view {view.epoch}, for which {voter} has not voted"
        newest = disks[node].newest_promise
        if newest != view.epoch:
            return f"{node} forms the view {view.epoch} although it has promised {newest}"
        return ""


@dataclass(slots=True)
class Generations:
    """A generation names one world, and is above every world that its members were in."""

    worlds: dict[Tag, World] = field(default_factory=dict)

    def formed(self, world: World, release: Release) -> str:
        """Its leader speaks of it first. A build that doesn't know all of it has the rest."""
        told = release.cut(world)
        if release.cut(self.worlds.setdefault(world.generation, told)) != told:
            return f"generation {world.generation} names two worlds"
        return ""

    def entered(self, node: NodeId, world: World, disk: Disk, release: Release) -> str:
        """``node`` is about to journal that it is in ``world``."""
        before = disk.newest_world(world.job)
        if before is not None and before.generation >= world.generation:
            return f"{node} enters {world.generation} after {before.generation}"
        return self.formed(world, release)


def unconnected(world: World) -> str:
    """Who can't be reached in a world of several, or nothing."""
    if len(world.members) > 1 and not all(world.hosts):
        return f"{world.generation} has a member that has no reducer"
    return ""


def forgotten(status: MemberStatus, disk: Disk) -> str:
    """A world that the node's disk knows of and its report does not, or nothing."""
    newest = disk.newest_world(status.job)
    told = status.world
    if newest is None or (told is not None and told.generation >= newest.generation):
        return ""
    return f"reports {told and told.generation}, its disk has {newest.generation}"


def durable_before(message: Message, disk: Disk) -> str:
    """What a message says and the sender's disk does not have yet, or nothing."""
    match message:
        case ViewAck(epoch) if epoch not in disk.promised:
            return f"a promise of {epoch}"
        case JobsKept(jobs):
            missing = [job for job in jobs if job not in disk.jobs]
            return f"the job {missing[0]}" if missing else ""
        case Ready(_, generation) if generation not in disk.entered:
            return f"its place in {generation}"
        case Heartbeat(epoch) if epoch != NO_TAG and epoch not in disk.followed:
            return f"the view {epoch}"
    return ""
