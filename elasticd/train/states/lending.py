"""What a trainer keeps for others: a state by reference, and updates. Under its session's lock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mlx.core as mx

from elasticd.checkpoints import layout
from elasticd.train.states.state import Snapshot
from elasticd.train.states.updates import Update, UpdateLog, packed
from elasticd.types import Stamp, Tag

_LEAST_LOG_BYTES = 64 << 20
"""The updates that are kept may have as many bytes as the state, or so many where that is small:
small models make steps faster than messages go round."""


@dataclass(frozen=True)
class Request:
    """Of a state, or of a part of it; with ``since`` the updates from there on serve better."""

    serial: int
    step: int
    stamp: Stamp
    since: Stamp | None
    part: int
    parts: int


@dataclass(frozen=True)
class Given:
    """The answer to a request, ready to be written."""

    tensors: Mapping[str, mx.array]
    metadata: Mapping[str, str]
    step: int
    stamp: Stamp


class Lending:
    """The newest update lives until all members have applied it; more is kept only when asked."""

    def __init__(self) -> None:
        self._log = UpdateLog()
        self._generation: Tag | None = None
        self._snapshot: Snapshot | None = None
        self._wanted: int | None = None
        self._limit_bytes = 0
        self.gives = True
        """Whether updates are all that makes a state: the script's own code changes nothing."""

    def order(self, generation: Tag, step: int | None, log: bool) -> None:
        """Keep the state of ``step`` and the updates behind it while ``generation`` lasts."""
        self._generation = generation if log else None
        self._snapshot, self._wanted = None, step

    def refuses(self, at: int | None) -> str:
        """Why the state that was ordered can't be had, as the newest is of step ``at``."""
        if not self.gives:
            return "the script's own code changes the state between steps"
        if self._wanted is not None and at is not None and at >= self._wanted:
            return f"step {at} is applied already"
        return ""

    def holds(self, snapshot: Snapshot, generation: Tag) -> bool:
        """A state is in place. True if it is the one that was ordered, which is kept then."""
        if self._wanted != snapshot.point.step or self._generation != generation:
            return False
        self._wanted, self._snapshot = None, snapshot
        self._limit_bytes = max(snapshot.bytes, _LEAST_LOG_BYTES)
        self._log.clear()
        return True

    @property
    def lends(self) -> bool:
        """Whether anything is kept for newcomers."""
        return self._generation is not None

    def applied(self, update: Update | None, generation: Tag | None) -> None:
        """A step was applied; None: its update can't be given to anybody."""
        if update is None:
            self.drop()
            return
        keeps = self.lends and self._generation == generation and self._wanted is None
        if not self._log.add(update, self._limit_bytes if keeps else 0) and keeps:
            self._generation = self._snapshot = None

    def committed(self, generation: Tag) -> None:
        """Every member has applied what we have: nobody needs it but who is to come."""
        if self._generation != generation:
            self.drop()

    def drop(self) -> None:
        """Keep nothing."""
        self._log.clear()
        self._generation = self._snapshot = self._wanted = None

    @property
    def starts(self) -> list[Stamp]:
        """The states from which others can come up to ours by updates."""
        return self._log.starts if self.gives else []

    def answer(self, request: Request, held: Snapshot | None) -> Given | None:
        """What we have of what is asked for; ``held`` is the state in place. None: nothing."""
        updates = self._log.since(request.since) if request.since and self.gives else []
        if updates:
            tensors, metadata = packed(updates)
            return Given(tensors, metadata, updates[-1].step, updates[-1].stamp)
        for snapshot in (self._snapshot, held):
            if snapshot is None:
                continue
            point = snapshot.point
            if (point.step, point.stamp) == (request.step, request.stamp):
                return Given(_part(snapshot, request), snapshot.metadata(), point.step, point.stamp)
        return None


def _part(snapshot: Snapshot, request: Request) -> Mapping[str, mx.array]:
    if request.parts <= 1:
        return snapshot.tensors
    sizes = {name: array.nbytes for name, array in snapshot.tensors.items()}
    names = layout.split(sizes, request.parts)[request.part]
    return {name: snapshot.tensors[name] for name in names}
