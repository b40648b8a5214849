"""What the members of a world have told of their states, which should all be the same."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from elasticd.core.words.records import World
from elasticd.core.words.shards import Digest
from elasticd.recovery import divergence
from elasticd.recovery.divergence import Divergence
from elasticd.types import NO_TAG, NodeId, Point, Stamp, Tag

SPLITS = 3
"""Without a majority, behind one restore after the other: it will always be so."""
_STATES = 4
"""Of so many states digests are waited for at a time."""
_OWN = ("keep", "init")


@dataclass(slots=True)
class ToldOfStates:
    """Of one job, while its driver lives."""

    digests: dict[Stamp, dict[NodeId, Digest]] = field(default_factory=dict)
    """What members told of the newest states, be it before we knew their world."""
    compared: Tag = NO_TAG
    """The last world of which that was found to differ: nothing more follows from it."""
    agreed: Point | None = None
    """The newest state that all members of a world have told of alike."""
    chosen: Stamp | None = None
    """A state that all took from one of them because theirs differed. What that one tells of it, it
    had told before: its memory may have changed since."""
    splits: list[int] = field(default_factory=list)
    """The steps after which states differed without a majority, since all agreed further on."""

    def hear(self, node: NodeId, told: Digest, world: World | None) -> None:
        """What a member has told of its own state after a step; ``world``: the last one."""
        if world is not None and told.generation < world.generation:
            return
        same = self.digests.setdefault(told.stamp, {})
        if node not in same or same[node].generation <= told.generation:
            same[node] = told  # it may have found another than before
        if len(self.digests) > _STATES:
            # Slow disks tell of old states after new ones: those must not drive these out.
            del self.digests[min(self.digests, key=self._step_of)]

    def compare(self, world: World, *, over: bool = False) -> tuple[int, Divergence] | None:
        """After which step states differ, and whom that speaks against: of a state that all have
        told of who have had it in this world, or who have kept it since an older one. ``over``: the
        world is left, and nobody else is waited for."""
        if world.generation <= self.compared:
            return None
        own = [n for n, s in zip(world.members, world.sources, strict=True) if s in _OWN]
        for stamp in sorted(self.digests, key=lambda s: (-self._step_of(s), s)):
            told = {
                n: d for n, d in self.digests[stamp].items() if d.generation == world.generation
            }
            step = self._step_of(stamp)
            waited = set(own if own and step < world.step else world.members)
            if not told or stamp == self.chosen or not (over or waited <= told.keys()):
                continue
            parts = {n: dict(d.parts) for n, d in told.items()}
            found = divergence.compare({n: d.digest for n, d in told.items()}, step, parts)
            if found is None:
                if step >= world.step and told.keys() >= set(world.members):
                    self._agree(Point(world.lineage, step, stamp))
                continue
            if silent := sorted(waited - told.keys()):
                text = f"{found.reason}; {', '.join(silent)} had not told of it yet"
                found = replace(found, reason=text)
            return step, found
        return None

    def judged(self, world: World) -> None:
        """Its states differ, and what follows from that is settled: from what is told of it later
        nothing more does."""
        self.compared = max(self.compared, world.generation)

    def _agree(self, point: Point) -> None:
        known = self.agreed
        if known is None or known.lineage != point.lineage or known.step < point.step:
            self.agreed = point

    def split(self, step: int) -> bool:
        """States differ after ``step``, and nobody has a majority. Whether that has returned behind
        each restore, so that it always will."""
        if self.splits and self.agreed is not None and self.agreed.step >= self.splits[0]:
            self.splits.clear()
        self.splits.append(step)
        return len(self.splits) >= SPLITS

    def choose(self, stamp: Stamp) -> None:
        """All are to take that state from one of them, as theirs differ."""
        self.chosen = stamp

    def clear(self) -> None:
        """The next world has others' digests."""
        self.digests.clear()

    def _step_of(self, stamp: Stamp) -> int:
        return next(iter(self.digests[stamp].values())).step
