"""What the members of a world have told of their states, which should all be the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from elasticd.core.words.records import World
from elasticd.core.words.shards import Digest, newest_states
from elasticd.core.words.worlds import Holding
from elasticd.recovery import divergence
from elasticd.recovery.divergence import Divergence
from elasticd.types import NO_TAG, NodeId, Point, Stamp, Tag

SPLITS = 3
"""Without a majority, behind one restore after the other: it will always be so."""


@dataclass(frozen=True, slots=True)
class Differing:
    """Members have told of one state otherwise."""

    world: World
    """The newest of those of which they told it."""
    point: Point
    """That state."""
    found: Divergence
    told: Mapping[NodeId, Tag]
    """Who has told of it, each as of which world."""


def without_untaken(
    worlds: Collection[World], holdings: Mapping[NodeId, Holding]
) -> dict[NodeId, Holding]:
    """Without what a member was to replace by the same state of another, as its own differed: all
    daemons may have been restarted before it did, and nobody else remembers why. Where nobody else
    has that state it has to do."""

    def untaken(node: NodeId, held: Holding) -> bool:
        point, entered = held.point, held.entered or NO_TAG
        return not held.given and any(
            point is not None
            and world.generation > entered
            and (world.step, world.stamp) == (point.step, point.stamp)
            and _takes_from_a_peer(world, node)
            for world in worlds
        )

    odd = {node for node, held in holdings.items() if untaken(node, held)}
    sure = {h.point.stamp for n, h in holdings.items() if n not in odd and h.point is not None}
    return {
        n: replace(h, point=None) if n in odd and h.point and h.point.stamp in sure else h
        for n, h in holdings.items()
    }


def _takes_from_a_peer(world: World, node: NodeId) -> bool:
    sources = zip(world.members, world.sources, strict=True)
    return any(n == node and source.startswith("peer:") for n, source in sources)


@dataclass(slots=True)
class ToldOfStates:
    """Of one job, while its driver lives."""

    digests: dict[NodeId, list[Digest]] = field(default_factory=dict)
    """What each member told of its newest states, be it before we knew their world. All of it as of
    one world: what is still true in a newer one it tells again there."""
    settled: dict[NodeId, Tag] = field(default_factory=dict)
    """The last world as of which what each told was found to differ: nothing more follows from what
    it told until then."""
    relied: dict[NodeId, int] = field(default_factory=dict)
    """The majority of the last time, and the step after which they were: if one of these tells
    another than before of its state, what they told is compared again. What they tell of later
    steps always is."""
    agreed: Point | None = None
    """The newest state that all members of a world have told of alike."""
    chosen: Stamp | None = None
    """A state that all took from one of them because theirs differed. What that one tells of it, it
    had told before: its memory may have changed since."""
    splits: list[int] = field(default_factory=list)
    """The steps after which states differed without a majority, since all agreed further on."""

    def hear(self, node: NodeId, told: Digest) -> None:
        """What a member has told of its own state after a step."""
        own = self.digests.get(node, [])
        if any(each.generation > told.generation for each in own):
            return
        # Of the same state it may have found another than before.
        if node in self.relied and any(
            (o.stamp, o.step) == (told.stamp, told.step) and o.digest != told.digest for o in own
        ):
            self._rely_no_more()
        others = [o for o in own if o.generation == told.generation and o.stamp != told.stamp]
        self.digests[node] = newest_states([*others, told])

    def compare(self, world: World) -> Differing | None:
        """Of a state that all have told of who have had it in this world, or who have kept it since
        an older one."""
        return self._compare([world], {}, over=False)

    def compare_left(
        self, worlds: Sequence[World], since: Mapping[NodeId, Tag], kept: Iterable[NodeId]
    ) -> Differing | None:
        """These worlds are left, and nobody else is waited for. ``since``: as of which each has
        what it holds; ``kept``: who is to go on with that, together with others.

        What these told, and who was in their worlds, is compared first: the more can tell who is
        right. Otherwise states of two worlds may be called the same though one lacks what the
        script has done since in its loop's body."""
        tags = {
            each.generation
            for node in kept
            for each in self.digests.get(node, ())
            if self._counts(node, each, since)
        }
        parted = [world for world in worlds if world.generation in tags]
        each_alone = ([world] for world in worlds)
        found = (self._compare(some, since, over=True) for some in (parted, *each_alone))
        return next((differing for differing in found if differing is not None), None)

    def _compare(
        self, worlds: Sequence[World], since: Mapping[NodeId, Tag], *, over: bool
    ) -> Differing | None:
        known = {world.generation: world for world in worlds}
        by_state: dict[tuple[int, Stamp], dict[NodeId, Digest]] = {}
        for node, own in self.digests.items():
            for each in own:
                if each.generation in known and self._counts(node, each, since):
                    by_state.setdefault((-each.step, each.stamp), {})[node] = each
        for (back, stamp), told in sorted(by_state.items()):
            step, tags = -back, {node: each.generation for node, each in told.items()}
            world = known[max(tags.values())]
            silent = sorted(_waited(world, step) - told.keys())
            if stamp == self.chosen or (silent and not over):
                continue
            parts = {n: dict(d.parts) for n, d in told.items()}
            found = divergence.compare({n: d.digest for n, d in told.items()}, step, parts)
            if found is None:
                self._agree(worlds, tags, step, stamp)
                continue
            if silent:
                text = f"{found.reason}; {', '.join(silent)} had not told of it yet"
                found = replace(found, reason=text)
            return Differing(world, Point(world.lineage, step, stamp), found, tags)
        return None

    def _counts(self, node: NodeId, told: Digest, since: Mapping[NodeId, Tag]) -> bool:
        news = told.generation > self.settled.get(node, NO_TAG)
        news = news or told.step > self.relied.get(node, told.step)
        return news and told.generation >= since.get(node, NO_TAG)

    def settle(self, world: World, nodes: Iterable[NodeId]) -> None:
        """The states of its members, and of ``nodes``, differ, and what follows from that is known:
        from what they tell of them later nothing more does."""
        self.relied.clear()
        for node in {*world.members, *nodes}:
            self.settled[node] = max(self.settled.get(node, NO_TAG), world.generation)

    def rely(self, nodes: Iterable[NodeId], step: int) -> None:
        """These were the majority after ``step``, and go on with what they hold."""
        self.relied = dict.fromkeys(nodes, step)

    def _rely_no_more(self) -> None:
        for node in self.relied:
            self.settled.pop(node, None)
        self.relied.clear()

    def _agree(
        self, worlds: Iterable[World], told: Mapping[NodeId, Tag], step: int, stamp: Stamp
    ) -> None:
        """All of these have told of that state alike: perhaps all members of a world have."""
        for world in worlds:
            whole = all(told.get(node) == world.generation for node in world.members)
            known = self.agreed
            further = known is None or known.lineage != world.lineage or known.step < step
            if whole and step >= world.step and further:
                self.agreed = Point(world.lineage, step, stamp)

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
        self.relied.clear()


def _waited(world: World, step: int) -> set[NodeId]:
    """Who has that state in this world."""
    own = {*world.members} - {*world.takers}
    return own if own and step < world.step else {*world.members}
