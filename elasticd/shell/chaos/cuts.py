"""Links of this node that are cut on purpose: what is cut, by what means, and until when.

The connections between two nodes are those of their daemons and, where their ranks are neighbours
in a ring, those of their reducers. ``drop`` makes the packet filter swallow what arrives of them,
on both nodes; ``one-way`` on one of them; ``close`` ends them. For all three this daemon makes no
new connection with the other node until the time is over, and new rings are cut as they appear.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from elasticd.core.words.records import World
from elasticd.core.words.requests.chaos import CutHow
from elasticd.errors import OperationError
from elasticd.ipc.foreign import Address, shut_down
from elasticd.ipc.listening import tcp_sockets
from elasticd.settings.config import split_address
from elasticd.shell.chaos.firewall import AS_ROOT, Firewall, Flow
from elasticd.shell.network.peers import Peers
from elasticd.types import NodeId

LOOK_SECONDS = 0.1
"""How often new connections of a ring are looked for."""

log = structlog.get_logger(__name__)

Rings = Callable[[], Sequence[tuple[int, World, int]]]


@dataclass(frozen=True, slots=True)
class End:
    """One connection of ours with the other node; pid 0 is the daemon's own."""

    pid: int
    ours: Address
    theirs: Address

    @property
    def arriving(self) -> Flow:
        return Flow(self.theirs, self.ours)


@dataclass(slots=True, eq=False)
class LinkCut:
    """A link that is cut now. ``name`` is the packet filter's, empty for ``close``."""

    node: NodeId
    how: CutHow
    name: str = ""
    done: set[End] = field(default_factory=set)


class Cutter:
    """Cuts links of one node; runs in the event loop."""

    def __init__(
        self,
        home: Path,
        peers: Peers,
        rings: Rings,
        firewall: Firewall,
        system: str = sys.platform,
    ) -> None:
        self._home, self._peers, self._rings, self._firewall = home, peers, rings, firewall
        self._system = system
        self._cuts: dict[NodeId, LinkCut] = {}

    def clean(self) -> None:
        """Take away what an earlier daemon of this home has left of its cuts."""
        for name in self._firewall.clean(self._home):
            log.warning("removed a cut that an earlier daemon left", cut=name)

    async def prepare(self, node: NodeId, how: CutHow, seconds: float) -> LinkCut:
        """Make sure that the link with ``node`` can be cut, without cutting it yet.

        Raises:
            OperationError: it is cut already, or the system doesn't let us.
        """
        if node in self._cuts:
            raise OperationError(f"the link with {node} is cut already")
        if how == "close" and self._system == "darwin" and self._in_a_ring_with(node):
            raise OperationError(
                f"a ring with {node} would stay whole: macOS lets nobody close its connections;"
                f" {AS_ROOT}"
            )
        cut = self._cuts[node] = LinkCut(node, how)
        if how != "close":
            try:
                cut.name = await asyncio.to_thread(self._firewall.open, self._home, seconds)
            except BaseException:
                del self._cuts[node]
                raise
        return cut

    async def hold(self, cut: LinkCut, seconds: float) -> None:
        """Cut the link for ``seconds``."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        try:
            self._peers.shun(cut.node)
            await self._cut_what_is_new(cut)
            cuts = len(cut.done)
            log.warning(
                "link cut on purpose", node=cut.node, how=cut.how, seconds=seconds, connections=cuts
            )
            while (left := end - loop.time()) > 0:
                await self._cut_what_is_new(cut)
                await asyncio.sleep(min(LOOK_SECONDS, left))
        finally:
            self._peers.unshun(cut.node)
            self._cuts.pop(cut.node, None)
            await asyncio.shield(asyncio.to_thread(self.abandon, cut))
            log.warning("link whole again", node=cut.node)

    def abandon(self, cut: LinkCut) -> None:
        """Let the packet filter forget it."""
        self._cuts.pop(cut.node, None)
        if cut.name:
            self._firewall.close(cut.name)

    async def _cut_what_is_new(self, cut: LinkCut) -> None:
        new = [end for end in self._ends(cut.node) if end not in cut.done]
        cut.done.update(new)
        if cut.how == "close":
            for end in new:
                self._close(cut, end)
        elif new:
            flows = [end.arriving for end in new]
            await asyncio.to_thread(self._firewall.drop, cut.name, flows)

    def _close(self, cut: LinkCut, end: End) -> None:
        if end.pid == 0:
            self._peers.hang_up(cut.node)
            return
        try:
            shut_down(end.pid, end.ours, end.theirs)
        except OperationError as error:
            log.error("a ring's connection stays", reason=str(error))

    def _in_a_ring_with(self, node: NodeId) -> bool:
        """Whether there are, or may be soon, connections of a ring with that node."""
        return any(
            (world.members.index(node) - rank) % len(world.members) in (1, len(world.members) - 1)
            for _, world, rank in self._rings()
            if node in world.members
        )

    def _ends(self, node: NodeId) -> list[End]:
        ends = [End(0, ours, theirs) for ours, theirs in self._peers.ends_of(node)]
        for pid, world, rank in self._rings():
            if node in world.members:
                ends += _ring_ends(pid, world, rank, world.members.index(node))
        return ends


def _ring_ends(pid: int, world: World, rank: int, other: int) -> list[End]:
    """The connections of rank ``rank``'s reducer with a neighbour: it has listened for the left
    one and connected to the right one."""
    size = len(world.members)
    ours = {split_address(world.hosts[rank])} if other == (rank - 1) % size else set()
    theirs = {split_address(world.hosts[other])} if other == (rank + 1) % size else set()
    found = []
    for connection in tcp_sockets(pid):
        if connection.laddr and connection.raddr:
            here, there = connection.laddr, connection.raddr
            end = End(pid, (here.ip, here.port), (there.ip, there.port))
            if end.ours in ours or end.theirs in theirs:
                found.append(end)
    return found
