"""What this daemon and the others tell each other: control frames, events, what they are."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import replace
from typing import Any, Protocol, assert_never

import structlog

from elasticd.core.words import effects as e
from elasticd.core.words.connections import ASIDE, Aside, HaveEvents, NodeInfo, PutOut, TakeEvents
from elasticd.core.words.frames import decode_frame, encode_frame, is_frame
from elasticd.core.words.hearers import Hearers, unsaid
from elasticd.core.words.limits import clipped
from elasticd.ipc.frames import LongFrame
from elasticd.settings.config import NodeConfig
from elasticd.shell.assembly import identity
from elasticd.shell.clock import unix_seconds
from elasticd.shell.control.server import Handlers
from elasticd.shell.network.callbacks import Callbacks
from elasticd.shell.network.peers import Peers
from elasticd.shell.network.transfer import Serve
from elasticd.shell.storage.eventform import Event
from elasticd.shell.storage.eventlacking import BATCH_EVENTS
from elasticd.shell.storage.eventlog import EventLog
from elasticd.shell.tasks import Tasks
from elasticd.trust.renewal import Renewal
from elasticd.types import NodeId

ASK_SECONDS = 1.0
"""Between two questions for the events of nodes that are not heard directly."""

BATCHES_AT_ONCE = 3
"""Of events; the receiver asks for more when it has taken them in."""

log = structlog.get_logger(__name__)


class Trusted(Protocol):
    """Who belongs to the cluster, as membership.py has it."""

    @property
    def known(self) -> PutOut | None:
        """What others are to hear."""

    def heard(self, node: NodeId, word: PutOut) -> None: ...

    def must_renew(self, wanted: Renewal) -> None:
        """A node takes our certificate no more."""

    def met(self, node: NodeId) -> None:
        """A node has said what it is."""

    def marked(self, info: NodeInfo) -> NodeInfo:
        """What this node is, with what its certificate is."""

    def start(self) -> None:
        """Go on with what was begun before this daemon."""

    def handlers(self) -> Handlers: ...

    async def close(self) -> None: ...


class Talk:
    """Every node's events reach every other, and are kept there, too.

    Attributes:
        events: what happened.
        infos: what is known of each node, for the list of them.
        peers: the connections, made with what they are to call.
        trusted: who belongs to the cluster.
    """

    def __init__(
        self,
        settings: NodeConfig,
        peers: Callable[[Callbacks], Peers],
        events: EventLog,
        serve: Serve,
        post: Callable[[e.Inward], None],
        trusted: Trusted,
    ) -> None:
        self._me = NodeId(settings.node_id)
        self._tasks = Tasks("sending a node the events that it lacks")
        self.events = events
        self._post = post
        self.trusted = trusted
        self.infos = {self._me: trusted.marked(identity.in_lists(settings))}
        self._hearers = Hearers()
        self.peers = peers(
            Callbacks(
                self._met,
                self._down,
                self._said,
                serve,
                moved=self._up,
                paths=lambda node, paths: post(e.Paths(node, paths)),
                must_renew=trusted.must_renew,
            )
        )

    def transmit(self, effect: e.Transmit) -> None:
        """Send a frame. Of a message that is too long, or newer than the version that both speak,
        only its place is sent, so that those behind it go on."""
        frame = self._hearers.fitting(effect.to, effect.frame)
        try:
            self.peers.send(effect.to, encode_frame(frame))
        except LongFrame as error:
            self._refused(effect.to, type(frame.message).__name__, error)
            self.peers.send(effect.to, encode_frame(unsaid(frame)))

    def emit(self, effect: e.Emit) -> None:
        """Keep an event and tell the others of it."""
        fields = dict(effect.fields)
        event = {
            "time": unix_seconds(),
            "node": fields.pop("culprit", self._me),
            "job": effect.job,
            "generation": effect.generation,
            "kind": effect.kind,
            "reason": effect.reason,
            **fields,
        }
        log.info("event", kind=effect.kind, reason=effect.reason, job=effect.job)
        written = self.events.write(event)
        self.tell_all(TakeEvents((written,)))

    def happened(self, kind: str, reason: str, fields: dict[str, Any]) -> None:
        """To this node, whatever jobs there are: keep that, and tell the others."""
        self.emit(e.Emit(None, kind, reason, None, fields))

    async def close(self) -> None:
        """End the connections, and what is being sent."""
        await self._tasks.cancel()
        await self.trusted.close()
        await self.peers.close()

    async def keep_asking(self, deaf: Callable[[], Collection[NodeId]]) -> None:
        """While a link is dead, what its other end tells comes from those that both reach."""
        for turn in itertools.count():
            await asyncio.sleep(ASK_SECONDS)
            silent = deaf()
            near = [node for node in self.peers.connected() if node not in silent]
            if silent and near:
                self._compare_events(near[turn % len(near)])

    def _met(self, node: NodeId, boot: str, address: str) -> None:
        self.events.news.meets(node, boot)
        self._up(node, boot, address)

    def _up(self, node: NodeId, boot: str, address: str) -> None:
        self._hearers.met(node, self.peers.protocol_of(node))
        self._tell(node, replace(self.infos[self._me], others=self.peers.others_than(node)))
        if (put_out := self.trusted.known) is not None:
            self._tell(node, put_out)
        self._compare_events(node)
        self._post(e.PeerUp(node, boot, address))

    def _down(self, node: NodeId, boot: str, reason: str) -> None:
        self._post(e.PeerDown(node, boot, reason))

    def _said(self, node: NodeId, frame: dict[str, Any]) -> None:
        if is_frame(frame):
            self._post(e.Arrived(node, decode_frame(frame)))
            return
        match ASIDE.decode(frame):
            case NodeInfo() as info:
                self.infos[node] = replace(info, others=())
                self.peers.are_at(info.others)
                if info.addresses:
                    self.peers.is_at(node, info.addresses)
                self.trusted.met(node)
            case HaveEvents(vector, after):
                self.events.news.heard(node, vector)
                batches = self.events.missing(vector, after)
                self._tasks.start(self._send_events(node, batches))
            case TakeEvents(items, more):
                for item in items:
                    self.events.add(item)
                if more and items:
                    last = str(items[-1].get("origin")), int(items[-1].get("number", 0))
                    self._tell(node, HaveEvents(self.events.vector(), last))
            case PutOut() as word:
                self.trusted.heard(node, word)
            case word:
                assert_never(word)

    def _compare_events(self, node: NodeId) -> None:
        """Say which events are here, to be sent those that are not."""
        self._tell(node, HaveEvents(self.events.vector()))

    async def _send_events(self, node: NodeId, batches: AsyncIterator[list[Event]]) -> None:
        """Some at once: who has slept through a year would be sent more than may wait for it."""
        count = 0
        async for batch in batches:
            count += 1
            more = count == BATCHES_AT_ONCE and len(batch) == BATCH_EVENTS
            self._tell(node, TakeEvents(tuple(batch), more))
            if more:
                return

    def moved(self, addresses: tuple[str, ...]) -> None:
        """This node is to be found at these addresses now, best first."""
        self.peers.moved(addresses)
        own = replace(self.infos[self._me], address=addresses[0], addresses=addresses)
        self.infos[self._me] = own
        self.tell_all(own)

    def notifies(self, told: tuple[str, ...]) -> None:
        """On which events this node tells people now."""
        self._is_now(replace(self.infos[self._me], notifies=told))

    def refuses(self, reason: str) -> None:
        """Why this node does not take its elasticd.toml as it is now; empty: it does."""
        self._is_now(replace(self.infos[self._me], settings_refused=clipped(reason)))

    def _is_now(self, info: NodeInfo) -> None:
        if info != self.infos[self._me]:
            self.infos[self._me] = info
            self.tell_what_it_is()

    def tell_what_it_is(self) -> None:
        """This node is not what it was before."""
        info = self.infos[self._me] = self.trusted.marked(self.infos[self._me])
        self.tell_all(info)

    def tell_all(self, word: Aside) -> None:
        """Send to every node that is connected."""
        for node in self.peers.connected():
            self._tell(node, word)

    def _tell(self, node: NodeId, word: Aside) -> None:
        try:
            self.peers.send(node, ASIDE.encode(word))
        except LongFrame as error:
            self._refused(node, type(word).__name__, error)

    def _refused(self, node: NodeId, name: str, error: LongFrame) -> None:
        """It stays unsaid; a daemon that ended of it would end at each start."""
        self.peers.complain(f"{name} to {node}", f"not sent: {error}")
