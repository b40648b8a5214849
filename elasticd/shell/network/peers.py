"""Connections between daemons (docs/protocols.md §4).

A daemon sends on the connection that it opened itself, so each pair has two. A peer is connected
while both are up and both said hello from the same run of the peer's daemon; the kernel closes them
when that daemon dies, which is the fastest news of it that there is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from elasticd.core.words.records import Path
from elasticd.core.words.versions import OLDEST
from elasticd.ipc.frames import MAX_FRAME_BYTES, encode
from elasticd.shell.complaints import Complaints
from elasticd.shell.network import transfer
from elasticd.shell.network.accepting import Acceptor, Admit
from elasticd.shell.network.bulk import Bulk
from elasticd.shell.network.callbacks import Callbacks
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.network.dialling import Dialler
from elasticd.shell.network.gate import Gate, Refusals
from elasticd.shell.network.hello import Identity
from elasticd.shell.network.minder import measure, mind
from elasticd.shell.network.table import PeerTable
from elasticd.shell.network.wires import PeerRun
from elasticd.shell.tasks import Tasks
from elasticd.types import NodeId

MAX_QUEUED_BYTES = 4 * MAX_FRAME_BYTES
"""What may wait for a peer that does not read; beyond it the connection is closed."""
MAX_OTHERS = 64
"""Of so many others one says where they are."""


class Peers:
    """All connections with other daemons. Runs in the event loop's thread."""

    def __init__(
        self,
        me: Identity,
        listen: str,
        addresses: Sequence[str],
        call: Callbacks,
        credentials: Credentials,
        admit: Admit | None = None,
        renew: Admit | None = None,
    ) -> None:
        """``admit`` talks with those who want to become members, and ``renew`` with members that
        want a new certificate; None: nobody may, here."""
        self._listen = listen
        self._addresses = tuple(addresses)
        self._tasks = Tasks("a connection with another node")
        self._kept = Tasks("the care for connections")
        self._gate = Gate(me, credentials)
        self._table = PeerTable(call, self._tasks, self._measure)
        self._bulk = Bulk(self._gate, call.serve, self._table.address_of)
        self._dialler = Dialler(self._gate, self._table, self._tasks)
        learn = self._dialler.learn_from
        self._acceptor = Acceptor(
            self._gate, self._table, self._bulk, self._tasks, learn, admit, renew
        )
        self.fetch = self._bulk.fetch

    async def start(self) -> None:
        """Listen and begin to dial.

        Raises:
            OperationError: the address is in use or not this machine's.
        """
        await self._acceptor.listen(self._listen)
        self.dial(self._addresses)
        self._kept.keep("judging the connections of peers", partial(mind, self._table))

    def dial(self, addresses: Iterable[str]) -> None:
        """Look for other daemons there, too."""
        for address in addresses:
            self._dialler.dial(address, learned=False)

    def may_be_at(self, addresses: Iterable[str]) -> None:
        """Look there, too, until none has answered for a while."""
        for address in addresses:
            self._dialler.dial(address, learned=True)

    def hint_at(self, addresses: Iterable[str]) -> None:
        """As :meth:`may_be_at`, where nobody vouches for what was said: less often."""
        for address in addresses:
            self._dialler.hint(address)

    def may_forget(self, addresses: Iterable[str]) -> None:
        """Look there no more for other daemons once none has answered for a while."""
        for address in addresses:
            self._dialler.may_forget(address)

    async def close(self) -> None:
        """Close every connection, after what was sent has had a second to leave."""
        self._table.closing = True
        await self._acceptor.stop()
        await self._kept.cancel()
        # Those that we send on go first: a peer reads our last words before it sees us gone.
        await self._dialler.close()
        await self._tasks.cancel()
        self._table.runs.clear()

    @property
    def me(self) -> Identity:
        return self._gate.me

    @property
    def refusals(self) -> Refusals:
        return self._gate.refusals

    @property
    def complain(self) -> Complaints:
        return self._gate.complain

    def send(self, node: NodeId, message: dict[str, Any]) -> None:
        """Queue a frame behind earlier ones; nothing if the peer is not connected.

        Raises:
            ProtocolError: the frame is too long.
        """
        peer = self._table.announced(node)
        if peer is None or peer.active is None:
            return
        frame = encode(message)
        writer = peer.active.writer
        waiting = writer.transport.get_write_buffer_size()
        if waiting + len(frame) > MAX_QUEUED_BYTES:
            self._table.drop(peer, f"{waiting} bytes wait that it does not read")
            return
        writer.write(frame)

    def connected(self) -> list[NodeId]:
        """The nodes that messages reach now, in order."""
        return sorted(node for node, peer in self._table.runs.items() if peer.announced)

    def reached(self) -> dict[NodeId, str]:
        """Where members are reached now, this node first."""
        return {self.me.node: self.me.address} | {
            node: self._table.runs[node].address for node in self.connected()
        }

    def addresses_of(self, node: NodeId) -> tuple[str, ...]:
        """All that a connected node advertises, best first; nothing of others."""
        peer = self._table.announced(node)
        return peer.addresses if peer is not None else ()

    def addresses(self) -> list[str]:
        """All that members advertise, this node first."""
        others = (self.addresses_of(node) for node in self.connected())
        return [each for every in (self.me.addresses, *others) for each in every]

    def moved(self, addresses: tuple[str, ...]) -> None:
        """This daemon is to be found at these addresses from now on. It listens there already.

        Others hear it in the hello of each connection, which is made anew: one to which we have no
        connection both ways, as it looks for us where we were, hears nothing else.
        """
        self._gate.me = replace(self._gate.me, address=addresses[0], addresses=addresses)
        self._tasks.start(self.connect_anew())

    def is_at(self, node: NodeId, addresses: tuple[str, ...]) -> None:
        """A connected node says at which addresses it is now, best first.

        Raises:
            ProtocolError: these are no addresses, or too many.
        """
        peer = self._table.announced(node)
        if peer is None or addresses == peer.addresses:
            return
        self._dialler.learn(addresses)
        self._table.moved(peer, addresses)

    def others_than(self, node: NodeId) -> tuple[str, ...]:
        """Where others are reached than this daemon and ``node``, for that to know."""
        others = (self._table.runs[each].address for each in self.connected() if each != node)
        return tuple(itertools.islice(others, MAX_OTHERS))

    def are_at(self, others: tuple[str, ...]) -> None:
        """A connected node says where it reaches others.

        Raises:
            ProtocolError: these are no addresses, or too many.
        """
        self._dialler.learn(others, MAX_OTHERS)
        for node in self._gate.twins.taken(others):
            if (peer := self._table.runs.get(node)) is not None:
                self._table.drop(peer, "others take another machine for it")

    def address_of(self, node: NodeId) -> str | None:
        """Where a connected node answers; None for others."""
        return self._table.address_of(node)

    def protocol_of(self, node: NodeId) -> int:
        """The version that both ends speak; of one that is not connected the oldest."""
        peer = self._table.announced(node)
        return peer.protocol if peer is not None else OLDEST

    def paths_of(self, node: NodeId) -> tuple[Path, ...]:
        """How a node is reached at each of its addresses; nothing if it is not connected."""
        peer = self._table.announced(node)
        return peer.paths() if peer is not None else ()

    def walled(self) -> Sequence[str]:
        """To which addresses this machine itself lets nothing out, each with the cure."""
        return self._gate.wall.told()

    def twins(self) -> Sequence[str]:
        """Which nodes two machines are, each with the cure."""
        return self._gate.twins.told(self.me.node, self.me.address)

    def shun(self, node: NodeId) -> None:
        """Neither connect to a node nor let it connect, as if the link were cut.

        What is connected stays; see :meth:`hang_up`.
        """
        peer = self._table.runs.get(node)
        self._gate.shun(node, peer.address if peer is not None else "")

    def unshun(self, node: NodeId) -> None:
        self._gate.unshun(node)

    def hang_up(self, node: NodeId) -> bool:
        """Close the connections with a node; whether there were any."""
        peer = self._table.runs.get(node)
        if peer is not None:
            self._table.drop(peer, "the link was cut on purpose")
        return peer is not None

    def serial_of(self, node: NodeId) -> int:
        """Of the certificate that a node has shown; 0 if it is not connected."""
        peer = self._table.runs.get(node)
        return self._gate.serial(peer.writers()) if peer is not None else 0

    def cut_off(self) -> None:
        """End every connection of members that were put out by now."""
        self._acceptor.cut_off()
        for peer in list(self._table.runs.values()):
            if any(self._gate.is_out(writer) for writer in peer.writers()):
                self._table.drop(peer, "it was put out of the cluster")

    def dialled(self) -> list[str]:
        """Every address at which another daemon may be."""
        return list(self._dialler.dials)

    def dial_now(self) -> None:
        """Try all addresses at once that are waited with: there is another certificate to show."""
        self._dialler.wake()

    async def connect_anew(self) -> None:
        """Replace each connection that this daemon has opened by another one, on which both ends
        show the certificates that they have now. Nothing is cut: the old one goes when the new
        one is there."""
        await self._dialler.connect_anew()

    def end_old(self) -> None:
        """End every connection on which a certificate was shown that would be refused now."""
        for peer in list(self._table.runs.values()):
            for writer in peer.writers():
                if self._gate.is_old(writer):
                    transfer.abort(writer)

    def ends_of(self, node: NodeId) -> list[tuple[tuple[str, int], tuple[str, int]]]:
        """Our and the other end of each connection with a node."""
        peer = self._table.runs.get(node)
        if peer is None:
            return []
        writers = peer.writers()
        found = [(w.get_extra_info("sockname"), w.get_extra_info("peername")) for w in writers]
        return [(tuple(ours), tuple(theirs)) for ours, theirs in found if ours and theirs]

    async def _measure(self, peer: PeerRun) -> None:
        await measure(peer, self._bulk.fetch)
        self._table.choose(peer)
