"""Whose turn it is among the jobs that have not ended: first come, first served, of those that can
run.

A job that can't run waits without keeping the others from their turns. It comes first again once it
can run and nothing runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from elasticd.core.words.records import JobRecord
from elasticd.counting import counted
from elasticd.recovery import fitness
from elasticd.types import JobId, NodeId


@dataclass(frozen=True, slots=True)
class Stall:
    """A job has its turn, and too few members for a world, or none can be made of them."""

    since: float
    costly: bool
    """Steps that no checkpoint has would be lost with its trainers, or with those of nodes that are
    away: they are enough to train it."""
    why: str


@dataclass(frozen=True, slots=True)
class NodesThere:
    """Those that are there, and those of them that no job is to run on."""

    members: Sequence[NodeId]
    unwanted: frozenset[NodeId] = frozenset()
    idle: frozenset[NodeId] = frozenset()
    """Those of the unwanted that never train anything."""

    def usable(self, record: JobRecord) -> frozenset[NodeId]:
        """Where the job may run."""
        return frozenset(self.members) - self.unwanted - fitness.left_out(record.unfit).keys()


def least_of(record: JobRecord) -> int:
    """The fewest members of a world of the job."""
    return max(1, int(record.spec["world"]["min"]))


def obstacle(record: JobRecord, nodes: NodesThere) -> str:
    """Why the job can't run on these, or nothing."""
    there, least = nodes.usable(record), least_of(record)
    if len(there) >= least:
        return ""
    text = f"it needs {counted(least, 'node')} and may run on {len(there)}"
    if drained := sorted((nodes.unwanted - nodes.idle) & {*nodes.members}):
        text += f"; drained: {', '.join(drained)}"
    if idle := sorted(nodes.idle & {*nodes.members}):
        text += f"; without the role train: {', '.join(idle)}"
    if out := sorted({*fitness.left_out(record.unfit)} & {*nodes.members}):
        text += f"; left out: {', '.join(out)}"
    return text


def too_few(record: JobRecord, members: Sequence[NodeId]) -> bool:
    """Whether these are too few for a world of a job that has its turn. Drained ones count: they
    may be in its world still."""
    return record.state == "running" and bool(obstacle(record, NodesThere(members)))


def waits_for(record: JobRecord, queue: Sequence[JobRecord], nodes: NodesThere) -> str:
    """Behind whom a queued job waits, and for which nodes; nothing if its turn comes next."""
    running = [other.id for other in queue if other.state == "running"]
    place = [other.id for other in queue].index(record.id)
    ahead = [
        other.id
        for other in queue[:place]
        if other.state == "queued" and not other.paused and not obstacle(other, nodes)
    ]
    behind = [*running, *ahead]
    texts = []
    if behind:
        more = len(behind) - 1
        texts.append(f"behind {behind[0]}" + (f" and {more} more" if more else ""))
    if why := obstacle(record, nodes):
        texts.append(why)
    return "; ".join(texts)


@dataclass(slots=True)
class Turns:
    """What a leader remembers while it leads."""

    patience_seconds: float
    """How long a job keeps its turn though too few members are there: they may be back soon."""
    costly_seconds: float
    """The same where steps may be lost by it."""
    vain: dict[JobId, tuple[frozenset[NodeId], float]] = field(default_factory=dict)
    """Jobs that yielded their turn: the nodes with which they had come to nothing, and until when
    that counts."""

    def forget(self) -> None:
        """Something has ended, or others lead: all get another chance."""
        self.vain.clear()

    def able(self, now: float, waiting: Iterable[JobRecord], nodes: NodesThere) -> list[JobRecord]:
        """Those that can run as far as is known, in the same order."""

        def in_vain(record: JobRecord) -> bool:
            known, until = self.vain.get(record.id, (None, 0.0))
            return now < until and known == nodes.usable(record)

        return [r for r in waiting if not obstacle(r, nodes) and not in_vain(r)]

    def first(
        self, now: float, waiting: Sequence[JobRecord], nodes: NodesThere
    ) -> JobRecord | None:
        """Whose turn it is if nothing runs. If none can run, the first waits for its nodes."""
        return next(iter(self.able(now, waiting, nodes) or waiting), None)

    def yields(
        self, now: float, stall: Stall | None, waiting: Sequence[JobRecord], nodes: NodesThere
    ) -> str:
        """Why a job that has its turn gives it to one of those that wait, or nothing."""
        if stall is None:
            return ""
        patience = self.costly_seconds if stall.costly else self.patience_seconds
        if now - stall.since < patience or not (able := self.able(now, waiting, nodes)):
            return ""
        return f"it yielded its turn to {able[0].id}: {stall.why}"

    def yielded(self, now: float, record: JobRecord, nodes: NodesThere) -> None:
        """It has."""
        self.vain[record.id] = nodes.usable(record), now + self.costly_seconds

    def deadlines(self, stall: Stall | None) -> list[float]:
        """When a turn may end from time alone."""
        if stall is None:
            return []
        again = [until for _, until in self.vain.values()]
        return [stall.since + self.patience_seconds, stall.since + self.costly_seconds, *again]
