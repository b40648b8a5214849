"""Who is silent: a pure function of when something arrived, and of now.

Every peer speaks at a steady pace. How long a silence may last is learned from the pace at which
its words really arrive (Jacobson's mean and deviation), between a floor and a ceiling. A node that
is itself starved distrusts itself first, after Lifeguard: time in which it did not run counts as
nobody's silence, and while its own timers come late its patience is longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from elasticd.types import NodeId

DEVIATIONS = 6.0
LATE_SECONDS = 0.05
"""A timer may come this late without that meaning anything."""
MOST_STRETCH = 3.0
CALM_SECONDS = 4.0
"""In this time without a late timer half of the lost confidence returns."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Between which a silence becomes one that means something, in seconds."""

    floor_seconds: float
    ceiling_seconds: float


@dataclass(slots=True)
class PeerRhythm:
    """When one peer was heard, and how regularly it beats."""

    heard_at: float
    beat_at: float = -inf
    gap: float = 0.0
    deviation: float = 0.0

    def heard(self, now: float) -> None:
        self.heard_at = max(self.heard_at, now)

    def beat(self, now: float) -> None:
        """A heartbeat: they come evenly spaced, so their gaps measure the way here."""
        gap, self.beat_at = now - self.beat_at, now
        self.heard(now)
        if gap == inf:
            return
        if self.gap == 0.0:
            self.gap, self.deviation = gap, gap / 4
            return
        error = gap - self.gap
        self.gap += error / 8
        self.deviation += (abs(error) - self.deviation) / 4

    def patience_seconds(self, bounds: Bounds) -> float:
        """How long a silence may last."""
        expected = self.gap + DEVIATIONS * self.deviation
        return min(max(bounds.floor_seconds, expected), bounds.ceiling_seconds)


@dataclass(slots=True)
class Health:
    """How far this node may trust its own clock: its timers come late when it is starved."""

    doubt: float = 0.0
    late_at: float = -inf

    def stretch(self, now: float) -> float:
        """By what its patience is multiplied, from 1 to MOST_STRETCH."""
        calm = 0.5 ** ((now - self.late_at) / CALM_SECONDS) if self.doubt else 0.0
        return 1.0 + min(self.doubt * calm, MOST_STRETCH - 1.0)

    def late(self, now: float, seconds: float, heartbeat_seconds: float) -> None:
        self.doubt = self.stretch(now) - 1.0 + seconds / (4 * heartbeat_seconds)
        self.late_at = now


@dataclass(slots=True)
class Detector:
    """Judges the silence of every peer that this node listens to."""

    bounds: Bounds
    heartbeat_seconds: float
    health: Health = field(default_factory=Health)
    peers: dict[NodeId, PeerRhythm] = field(default_factory=dict)
    _due: float = inf

    def meet(self, node: NodeId, now: float) -> None:
        """Begin to listen, or begin again: what was learned of its pace is kept."""
        known = self.peers.get(node)
        if known is None:
            self.peers[node] = PeerRhythm(now)
        else:
            known.heard_at, known.beat_at = now, -inf

    def heard(self, node: NodeId, now: float) -> None:
        if node in self.peers:
            self.peers[node].heard(now)

    def beat(self, node: NodeId, now: float) -> None:
        if node in self.peers:
            self.peers[node].beat(now)

    def heard_at(self, node: NodeId) -> float:
        return self.peers[node].heard_at if node in self.peers else -inf

    def silent_at(self, node: NodeId, now: float) -> float:
        """When its silence will have lasted too long."""
        peer = self.peers.get(node)
        if peer is None:
            return inf
        return peer.heard_at + peer.patience_seconds(self.bounds) * self.health.stretch(now)

    def silent_at_soonest(self, node: NodeId) -> float:
        """A bound on :meth:`silent_at` that only :meth:`hasten` lowers."""
        least = min(self.bounds.floor_seconds, self.bounds.ceiling_seconds)
        return self.heard_at(node) + least

    def hasten(self, node: NodeId, now: float) -> None:
        """It let a question open: half of its time is over."""
        peer = self.peers.get(node)
        if peer is not None:
            half = peer.patience_seconds(self.bounds) / 2
            peer.heard_at = min(peer.heard_at, now - half)

    def running(self, now: float, due: float) -> float:
        """This node runs; it wanted to at ``due`` the latest. Returns for how long it did not.

        Whatever came meanwhile waits to be read: that time is taken from every silence.
        """
        late = now - due
        if late < LATE_SECONDS:
            return 0.0
        self.health.late(now, late, self.heartbeat_seconds)
        for peer in self.peers.values():
            peer.heard_at = min(now, peer.heard_at + late)
            peer.beat_at = -inf
        return late
