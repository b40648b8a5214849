"""One node's control plane with its sessions: what a shell drives.

    effects = endpoint.step(now, event)    perform them in order; their results come back as events
    endpoint.next_deadline()               when to call step(now, Tick()) if nothing else happens

The node inside sends and receives messages; outside there are frames, and connections that may
lose, repeat and reorder them. Whatever becomes of those, the node gets each message of a peer's
daemon once and in order, or is told that some were given up (``session`` of :class:`PeerUp` rises).
"""

from __future__ import annotations

from dataclasses import replace

from elasticd.core import effects as e
from elasticd.core.frames import Frame
from elasticd.core.node import Node
from elasticd.core.sessions import Session
from elasticd.types import NodeId


class Endpoint:
    """Pure: no clock, socket, thread, file or random number."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.sessions: dict[NodeId, Session] = {}
        self.strays = 0
        """Frames of runs of daemons that are not known."""
        self._addresses: dict[NodeId, str] = {}
        self._node_deadline = 0.0

    def step(self, now: float, event: e.Inward) -> list[e.Outward]:
        """Take in one event and return what is to be done, in order."""
        match event:
            case e.PeerUp():
                return self._peer_up(now, event)
            case e.PeerDown(node, boot, _):
                session = self.sessions.get(node)
                if session is not None and session.boot == boot:
                    session.down()
                return self._feed(now, event)
            case e.Arrived(node, frame):
                return self._arrived(now, node, frame)
            case e.Tick():
                effects = self._overdue(now)
                return effects + self._feed(now, event) if now >= self._node_deadline else effects
            case _:
                return self._feed(now, event)

    def next_deadline(self) -> float:
        return min([self._node_deadline, *(s.deadline() for s in self.sessions.values())])

    # --- events -----------------------------------------------------------------------------------

    def _peer_up(self, now: float, event: e.PeerUp) -> list[e.Outward]:
        session = self.sessions.get(event.node)
        if session is None or session.boot != event.boot:
            session = self.sessions[event.node] = Session(self.node.boot, event.boot)
        self._addresses[event.node] = event.address
        effects: list[e.Outward] = [e.Transmit(event.node, frame) for frame in session.up(now)]
        return effects + self._feed(now, replace(event, session=session.restarts))

    def _arrived(self, now: float, node: NodeId, frame: Frame) -> list[e.Outward]:
        session = self.sessions.get(node)
        if session is None:
            self.strays += 1
            return []
        restarts = session.restarts
        messages = session.receive(now, frame)
        effects: list[e.Outward] = []
        if session.restarts != restarts:
            effects += self._start_again(now, node, "it gave messages to us up")
        for message in messages:
            effects += self._feed(now, e.Received(node, message))
        return effects

    def _overdue(self, now: float) -> list[e.Outward]:
        return [
            e.Transmit(node, frame)
            for node, session in self.sessions.items()
            if now >= session.deadline()
            for frame in session.overdue(now)
        ]

    # --- the node ---------------------------------------------------------------------------------

    def _feed(self, now: float, event: e.Event) -> list[e.Outward]:
        """Let the node take an event in, and put what it sends into sessions."""
        effects: list[e.Outward] = []
        for effect in self._step_node(now, event):
            if isinstance(effect, e.Send):
                effects += self._send(now, effect)
            else:
                effects.append(effect)
        self._node_deadline = self.node.next_deadline()
        for node, session in self.sessions.items():
            if session.overflows:
                session.give_up()
                return effects + self._start_again(now, node, "it takes no messages from us")
        return effects

    def _step_node(self, now: float, event: e.Event) -> list[e.Effect]:
        return self.node.step(now, event)

    def _send(self, now: float, effect: e.Send) -> list[e.Outward]:
        session = self.sessions.get(effect.to)
        if session is None:
            return []
        return [e.Transmit(effect.to, frame) for frame in session.send(now, effect.message)]

    def _start_again(self, now: float, node: NodeId, reason: str) -> list[e.Outward]:
        """Messages were lost for good: to the node it is as if the peer had gone and returned."""
        session = self.sessions[node]
        effects = self._feed(now, e.PeerDown(node, session.boot, reason))
        if session.connected:
            address = self._addresses[node]
            up = e.PeerUp(node, session.boot, address, session.restarts)
            effects += self._feed(now, up)
        return effects
