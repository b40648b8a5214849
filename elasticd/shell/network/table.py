"""Which other daemons are connected, and over which of their addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import structlog

from elasticd.shell.network import transfer
from elasticd.shell.network.callbacks import Callbacks
from elasticd.shell.network.hello import Hello
from elasticd.shell.network.wires import PeerRun
from elasticd.shell.tasks import Tasks
from elasticd.types import NodeId

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class PeerTable:
    """The newest run of each other daemon with which there is a connection.

    Attributes:
        call: is told who comes and goes.
        measure: finds out what each address of a peer that has several carries.
        closing: nobody is told any more who goes.
    """

    call: Callbacks
    tasks: Tasks
    measure: Callable[[PeerRun], Coroutine[Any, Any, None]]
    closing: bool = False
    runs: dict[NodeId, PeerRun] = field(default_factory=dict)

    def announced(self, node: NodeId) -> PeerRun | None:
        """The daemon of a connected node."""
        peer = self.runs.get(node)
        return peer if peer is not None and peer.announced else None

    def address_of(self, node: NodeId) -> str | None:
        peer = self.announced(node)
        return peer.address if peer is not None else None

    def boot_of(self, node: NodeId) -> str | None:
        """The run of its daemon to which there is a connection."""
        peer = self.runs.get(node)
        return peer.boot if peer is not None else None

    def holds(self, peer: PeerRun) -> bool:
        """It has neither gone nor been started again."""
        return self.runs.get(peer.node) is peer

    def advertises(self, address: str) -> bool:
        """Whether a connected node says that it is there."""
        return any(peer.announced and address in peer.addresses for peer in self.runs.values())

    def meet(self, hello: Hello) -> PeerRun:
        """Whoever said this hello, and was admitted; an earlier run of it has gone. One that is
        connected says itself when its addresses change; what it says before counts as said last."""
        peer = self.runs.get(hello.node)
        if peer is not None and peer.boot != hello.boot:
            self.drop(peer, "its daemon was started again")
            peer = None
        if peer is None:
            peer = PeerRun(hello.node, hello.boot, hello.address, hello.addresses, hello.protocol)
            self.runs[hello.node] = peer
        elif not peer.announced:
            peer.addresses = hello.addresses
        return peer

    def moved(self, peer: PeerRun, addresses: tuple[str, ...]) -> None:
        """A connected daemon says that it advertises other addresses now."""
        peer.moved(addresses, asyncio.get_running_loop().time())
        self.choose(peer)
        self._measure(peer)

    def more(self, peer: PeerRun) -> None:
        """A connection was added: with one in each direction it is connected."""
        if peer.announced or not peer.wires or not peer.incoming:
            return
        peer.announce(asyncio.get_running_loop().time())
        log.info("peer connected", node=peer.node, address=peer.address)
        self.call.connected(peer.node, peer.boot, peer.address)
        self.choose(peer)
        self._measure(peer)

    def _measure(self, peer: PeerRun) -> None:
        """One measurement at a time: it goes on with what there is now."""
        if peer.measuring is not None:
            peer.measuring.cancel()
        if len(peer.addresses) > 1:
            peer.measuring = self.tasks.start(self.measure(peer))

    def fewer(self, peer: PeerRun, reason: str) -> None:
        """A connection ended. It takes others to be connected still.

        What is left of one that was not connected yet stays: two that ended each other's halves
        whenever they lost their own would go on so for ever.
        """
        if not self.holds(peer):
            return
        if peer.wires and peer.incoming:
            self.choose(peer)
        elif peer.announced or not peer.writers():
            self.drop(peer, reason)

    def choose(self, peer: PeerRun) -> None:
        """Send over the best address from now on."""
        before = peer.active
        if peer.choose() and peer.announced and before is not None and peer.active is not None:
            log.info("peer moved", node=peer.node, address=peer.address, before=before.address)
            self.call.moved(peer.node, peer.boot, peer.address)
        if peer.announced and peer.news():
            self.call.paths(peer.node, peer.paths())

    def drop(self, peer: PeerRun, reason: str) -> None:
        """End every connection with a daemon."""
        if not self.holds(peer) or self.closing:
            return
        del self.runs[peer.node]
        peer.gone.set()
        peer.known.set()
        for writer in peer.writers():
            transfer.abort(writer)
        if peer.announced:
            peer.announced = False
            log.info("peer disconnected", node=peer.node, reason=reason)
            self.call.disconnected(peer.node, peer.boot, reason)
