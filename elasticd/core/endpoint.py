"""One node's control plane with its sessions: what a shell drives.

    effects = endpoint.step(now, event)    perform them in order; their results come back as events
    endpoint.next_deadline()               when to call step(now, Tick()) if nothing else happens

The node inside sends and receives messages; outside there are frames, and connections that may
lose, repeat and reorder them. Whatever becomes of those, the node gets each message of a peer's
daemon once and in order, or is told that some were given up (``session`` of :class:`PeerUp` rises).
A peer that is not heard directly but through a third node is up, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import assert_never

from elasticd.core.membership.links import ASK_SECONDS, SELDOM_ASK_SECONDS, Links
from elasticd.core.membership.sessions import Session
from elasticd.core.membership.vigil import Alarms, Vigil
from elasticd.core.node import Node
from elasticd.core.words import effects as e
from elasticd.core.words.frames import Frame, decode_frame, encode_frame
from elasticd.core.words.messages import Message
from elasticd.core.words.views import Carry, Heartbeat, OfLinks, Probe, Vouch
from elasticd.errors import ProtocolError
from elasticd.types import NodeId


class Endpoint:
    """Pure: no clock, socket, thread, file or random number."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.me = node.me
        self.sessions: dict[NodeId, Session] = {}
        self.links = Links(node.ctx.timing.silent_floor_seconds / 2)
        self.strays = 0
        """Frames of runs of daemons that are not known, and relayed ones that are none."""
        self._addresses: dict[NodeId, str] = {}
        self._up: set[NodeId] = set()
        """Peers that the node inside takes for connected."""
        self._node_deadline = 0.0
        self._due = inf
        self._vigil = Vigil(self.links, self.sessions, node.views)
        self._alarms = Alarms(self.sessions)

    def step(self, now: float, event: e.Inward) -> list[e.Outward]:
        """Take in one event and return what is to be done, in order."""
        due = self._vigil.refresh() if now >= self._vigil.due else self._vigil.due
        if now - self._due > ASK_SECONDS:
            self.links.paused(now, now - self._due)
        self._due = inf
        effects = self._take_in(now, event)
        if now >= due:
            effects += self._mind_links(now)
            self._vigil.hurry()
        self._vigil.stepped(now, self._alarms.stirred)
        self._alarms.set()
        return effects

    def _take_in(self, now: float, event: e.Inward) -> list[e.Outward]:
        if isinstance(event, e.ToNode):
            return self._feed(now, event)
        match event:
            case e.PeerUp():
                return self._peer_up(now, event)
            case e.PeerDown():
                return self._peer_down(now, event)
            case e.Arrived(node, frame):
                return self._arrived(now, node, frame)
            case e.Tick():
                effects = self._overdue(now)
                return effects + self._feed(now, event) if now >= self._node_deadline else effects
            case _:
                assert_never(event)

    def next_deadline(self) -> float:
        self._due = min(self._node_deadline, self._alarms.next())
        if self._vigil.due < self._due:
            self._vigil.refresh()
        self._due = min(self._due, self._vigil.due)
        return self._due

    def repeat(
        self, now: float, node: NodeId, boots: tuple[str, str], beat: Heartbeat
    ) -> list[e.Outward]:
        """Say again what was said to that run of a peer's daemon; the node inside takes no part."""
        session = self.sessions.get(node)
        if session is None or boots != (session.mine, session.boot):
            return []
        return self._frames(now, node, session.send(now, beat))

    def last_words(self, now: float, event: e.Leave) -> list[e.Transmit]:
        """What tells the others that this node goes, though effects of before were never performed:
        messages among them are given up, so that nobody waits for them first."""
        for session in self.sessions.values():
            session.give_up()
        return [each for each in self.step(now, event) if isinstance(each, e.Transmit)]

    # --- connections ------------------------------------------------------------------------------

    def _peer_up(self, now: float, event: e.PeerUp) -> list[e.Outward]:
        node = event.node
        session = self._session(node, event.boot)
        self._addresses[node] = event.address
        self.links.up(node, now)
        self._vigil.hurry()
        self._up.add(node)
        effects = self._frames(now, node, session.up(now))
        return effects + self._feed(now, replace(event, session=session.restarts))

    def _peer_down(self, now: float, event: e.PeerDown) -> list[e.Outward]:
        node = event.node
        session = self.sessions.get(node)
        if session is None or session.boot != event.boot:
            return self._feed(now, event)
        self.links.down(node, now, event.reason)
        self._vigil.hurry()
        if self.links.relayed(node, now):
            return self._tell_ways(now) if self.node.ctx.reach.cut(node) else []
        session.down()
        self._alarms.stir(node)
        self._up.discard(node)
        return self._feed(now, event)

    def _session(self, node: NodeId, boot: str) -> Session:
        session = self.sessions.get(node)
        if session is None or session.boot != boot:
            session = self.sessions[node] = Session(self.node.boot, boot)
            self.links.drop(node)
            self.node.ctx.reach.hears(node)
        return session

    # --- frames that come -------------------------------------------------------------------------

    def _arrived(self, now: float, node: NodeId, frame: Frame) -> list[e.Outward]:
        session = self.sessions.get(node)
        if session is None:
            self.strays += 1
            return []
        if frame.boots[0] == session.boot:
            if self.links.doubtful(node, now):
                self._vigil.hurry()
            self.links.heard(node, now)
        effects: list[e.Outward] = []
        for message in self._take(now, node, session, frame, effects):
            if not isinstance(message, OfLinks):
                effects += self._feed(now, e.Received(node, message))
                continue
            match message:
                case Probe(about):
                    effects += self._answer(now, node, about)
                case Vouch():
                    effects += self._vouched(now, node, message)
                case Carry():
                    effects += self._carried(now, node, message)
                case _:
                    assert_never(message)
        return effects

    def _take(
        self, now: float, node: NodeId, session: Session, frame: Frame, effects: list[e.Outward]
    ) -> Sequence[Message]:
        restarts = session.restarts
        self._alarms.stir(node)
        messages = session.receive(now, frame)
        if session.restarts != restarts:
            effects += self._start_again(now, node, "it gave messages to us up")
        return messages

    def _overdue(self, now: float) -> list[e.Outward]:
        effects: list[e.Outward] = []
        for node in self._alarms.due(now):
            effects += self._frames(now, node, self.sessions[node].overdue(now))
        return effects

    # --- third nodes ------------------------------------------------------------------------------

    def _mind_links(self, now: float) -> list[e.Outward]:
        """Ask about peers that are not heard directly; let go of relays that are not needed."""
        effects: list[e.Outward] = []
        for node in list(self.sessions):
            link = self.links.of(node)
            if link.lost_at is not None and not self.links.deaf(node, now):
                seconds = now - link.lost_at
                self.links.proved(node)
                self.node.ctx.reach.hears(node)
                self.node.liveness.rewired()
                effects += self._tell_ways(now)
                why = f"{node} is heard directly again; for {seconds:.1f} s it was not"
                effects.append(e.Emit(None, "link_returned", why, None, {"culprit": node}))
            if self._vigil.wanted(node) and self.links.due(node, now):
                known = node in self.node.liveness.peers
                self.links.asked(node, now, ASK_SECONDS if known else SELDOM_ASK_SECONDS)
                for helper in self.links.helpers(node, now, self._vigil.third(node)):
                    effects += self._say(now, helper, Probe(node))
        return effects

    def _answer(self, now: float, asker: NodeId, about: NodeId) -> list[e.Outward]:
        session = self.sessions.get(about)
        if not self.links.knows(about, now):
            return []
        boot = session.boot if session is not None else ""
        return self._say(now, asker, Vouch(about, boot, self.links.age_seconds(about, now)))

    def _vouched(self, now: float, helper: NodeId, vouch: Vouch) -> list[e.Outward]:
        node, session = vouch.node, self.sessions.get(vouch.node)
        if session is None or not self.links.doubtful(node, now):
            return []
        self._vigil.hurry()
        if vouch.age_seconds is None or vouch.boot != session.boot:
            self.links.denied(node, helper, now)
            self.node.liveness.hearsay(node, self.links.evidence(node, now))
            return []
        self.links.vouched(node, helper, now)
        again = [] if session.connected else session.up(now)
        return self._frames(now, node, [*again, session.bare()])

    def _carried(self, now: float, carrier: NodeId, carry: Carry) -> list[e.Outward]:
        if carry.target != self.me:
            # One leg for its source and one to its target: no further, so nothing goes in circles.
            known = carrier == carry.source and carry.target in self.sessions
            return self._say(now, carry.target, carry) if known else []
        node, session = carry.source, self.sessions.get(carry.source)
        try:
            frame = decode_frame(carry.frame)
        except ProtocolError:
            self.strays += 1
            return []
        if session is None or frame.boots != (session.boot, self.node.boot):
            self.strays += 1
            return []
        self._vigil.hurry()
        heard_of = self.links.relayed(node, now)
        self.links.carried(node, carrier, carry.deaf, now)
        effects: list[e.Outward] = []
        if not session.connected:
            effects += self._frames(now, node, session.up(now))
        elif carry.deaf and not heard_of:
            effects += self._frames(now, node, [session.bare()])
        effects += self._note_loss(now, node, carrier)
        if node not in self._up:
            self._up.add(node)
            address = self._addresses.get(node, "")
            up = e.PeerUp(node, session.boot, address, session.restarts)
            effects += self._feed(now, up)
        for message in self._take(now, node, session, frame, effects):
            if not isinstance(message, OfLinks):
                effects += self._feed(now, e.Received(node, message))
        return effects

    def _note_loss(self, now: float, node: NodeId, carrier: NodeId) -> list[e.Outward]:
        """The link is dead and the node is not: the first frame that came another way proves it."""
        if self.links.of(node).lost_at is not None or not self.links.doubtful(node, now):
            return []
        sign = self.links.lost(node, now)
        self.node.ctx.reach.lost(node, connected=self.links.of(node).up)
        self.node.liveness.rewired()
        why = f"{node} is not heard directly ({sign}), but through {carrier}: the link is lost"
        fields = {"culprit": node, "via": carrier, "evidence": sign}
        return [e.Emit(None, "link_lost", why, None, fields), *self._tell_ways(now)]

    def _tell_ways(self, now: float) -> list[e.Outward]:
        return self._feed(now, e.Paths(self.me, ()))

    # --- frames that go ---------------------------------------------------------------------------

    def _say(self, now: float, node: NodeId, message: Message) -> list[e.Outward]:
        """To a node directly; what is said so may be lost."""
        session = self.sessions.get(node)
        if session is None or not self.links.of(node).up:
            return []
        self._alarms.stir(node)
        return [e.Transmit(node, frame) for frame in session.send(now, message)]

    def _frames(self, now: float, node: NodeId, frames: list[Frame]) -> list[e.Outward]:
        """Over the link, and through a third node while that is in doubt: the session drops
        whatever comes twice."""
        effects: list[e.Outward] = []
        self._alarms.stir(node)
        via = self.links.relay(node, now)
        for frame in frames:
            if self.links.of(node).up:
                effects.append(e.Transmit(node, frame))
            if via is not None:
                deaf = self.links.deaf(node, now)
                effects += self._say(now, via, Carry(self.me, node, deaf, encode_frame(frame)))
        return effects

    # --- the node ---------------------------------------------------------------------------------

    def _feed(self, now: float, event: e.Event) -> list[e.Outward]:
        """Let the node take an event in, and put what it sends into sessions."""
        effects: list[e.Outward] = []
        told: dict[NodeId, None] = {}
        for effect in self._step_node(now, event):
            if isinstance(effect, e.Send):
                told[effect.to] = None
                effects += self._send(now, effect)
            else:
                effects.append(effect)
        self._node_deadline = self.node.next_deadline()
        for node in told:
            session = self.sessions.get(node)
            if session is not None and session.overflows:
                session.give_up()
                return effects + self._start_again(now, node, "it takes no messages from us")
        return effects

    def _step_node(self, now: float, event: e.Event) -> list[e.Effect]:
        return self.node.step(now, event)

    def _send(self, now: float, effect: e.Send) -> list[e.Outward]:
        session = self.sessions.get(effect.to)
        if session is None:
            return []
        return self._frames(now, effect.to, session.send(now, effect.message))

    def _start_again(self, now: float, node: NodeId, reason: str) -> list[e.Outward]:
        """Messages were lost for good: to the node it is as if the peer had gone and returned."""
        session = self.sessions[node]
        effects = self._feed(now, e.PeerDown(node, session.boot, reason))
        if session.connected:
            address = self._addresses.get(node, "")
            up = e.PeerUp(node, session.boot, address, session.restarts)
            effects += self._feed(now, up)
        return effects
