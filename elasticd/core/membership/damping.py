"""A peer that falls silent and speaks again, over and over, is let in more and more slowly."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.types import NodeId

STEADY_SECONDS = 0.5
"""For how long it has to be heard after its second flap; twice that after the third, and so on."""
LONGEST_STEADY_SECONDS = 10.0
FORGET_HALF_SECONDS = 60.0
"""In this time half of its flaps are forgotten."""


@dataclass(slots=True)
class FlapRecord:
    flaps: float
    at: float
    admit_at: float


@dataclass(slots=True)
class Damping:
    """Remembers flaps: losses of a run of a daemon that had not ended. The first is free."""

    records: dict[NodeId, FlapRecord] = field(default_factory=dict)

    def flapped(self, node: NodeId, now: float) -> float:
        """The same run is back. Returns for how many seconds it has to be steady first."""
        record = self.records.get(node)
        before = 0.0
        if record is not None:
            before = record.flaps * 0.5 ** ((now - record.at) / FORGET_HALF_SECONDS)
        wait = 0.0
        if before >= 0.5:
            wait = min(STEADY_SECONDS * 2 ** (round(before) - 1), LONGEST_STEADY_SECONDS)
        self.records[node] = FlapRecord(before + 1, now, now + wait)
        return wait

    def admit_at(self, node: NodeId) -> float:
        """From when on it may enter a view."""
        record = self.records.get(node)
        return record.admit_at if record is not None else 0.0

    def restarted(self, node: NodeId) -> None:
        """It is another run now: that one has not flapped yet."""
        self.records.pop(node, None)
