"""Whom one job's leader trusts: members that diverge, inputs that kill, states gone bad."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from elasticd.core.context import Context
from elasticd.core.leading.comparing import ToldOfStates
from elasticd.core.words.records import World
from elasticd.core.words.worlds import Fault, Holding, Prepared, Rechecked
from elasticd.recovery import recheck
from elasticd.recovery.poison import Ladder
from elasticd.recovery.recheck import Check, Finding
from elasticd.types import NO_TAG, JobId, NodeId, Stamp, Tag

_DIVERGENCES = 2


def without_unproven(holdings: Mapping[NodeId, Holding]) -> dict[NodeId, Holding]:
    """Without what the body of a newcomer has made of a state that nobody has compared yet, where
    somebody else holds all that may be committed."""
    sure = [h for h in holdings.values() if h.point is not None and not h.unproven]

    def counts(holding: Holding) -> bool:
        point = holding.point
        if point is None or not holding.unproven or holding.given:
            return True
        # Nothing is committed that a member of the same world has not applied.
        return not any(
            other.point.step >= point.step or other.entered == holding.entered
            for other in sure
            if other.point is not None
        )

    return {n: h if counts(h) else replace(h, point=None) for n, h in holdings.items()}


@dataclass(frozen=True, slots=True)
class Split:
    """Members differ, and nobody knows who is right."""

    world: Tag = NO_TAG
    """The newest world of the lines on which they do."""
    state: Stamp | None = None
    """What they have otherwise."""


@dataclass(slots=True)
class Trust:
    """Of one job, while its driver lives."""

    ctx: Context
    job: JobId
    ladder: Ladder = field(default_factory=Ladder)
    """Of steps that kill; see poison.py."""
    states: ToldOfStates = field(default_factory=ToldOfStates)
    rechecking: tuple[int, int] = (-1, -1)
    """The newest step and grain that was computed by several."""
    rechecks: dict[NodeId, str] = field(default_factory=dict)
    rechecked_at: float = 0.0
    """When the first of them was told."""
    tainted: dict[NodeId, Tag] = field(default_factory=dict)
    """Members whose state differs from the majority's, by the world in which it did: until they
    have entered a later one, or hold nothing any more, they take another's."""
    apart: Tag = NO_TAG
    """States that members have had since this world, or an older one, differ though nobody computes
    wrongly: one goes on with its own, and all others take that."""
    lent: dict[NodeId, Tag] = field(default_factory=dict)
    """Newcomers that were brought a state, and the world that it is of."""
    diverged: dict[NodeId, int] = field(default_factory=dict)
    """How often each node was the odd one out."""
    rollback: Tag = NO_TAG
    """The last world of which no state can be trusted: the next one starts from a checkpoint."""
    split: Split = Split()
    """No state is trusted of that world, or of an earlier one; but one of a world that has gone on
    apart from its line is, unless it is the very state on which members differ."""
    not_finite: dict[int, set[Tag]] = field(default_factory=dict)
    """By step, the generations in which its loss was not finite."""
    benched: dict[NodeId, float] = field(default_factory=dict)
    """Nodes that are left out, and until when: newcomers that could not take the state, nodes that
    compute wrongly."""

    def fit(self, node: NodeId) -> bool:
        """Whether ``node`` may be in a world now."""
        return self.benched.get(node, 0.0) <= self.ctx.now

    def bench(self, node: NodeId, why: str) -> None:
        """Leave a newcomer out for a while."""
        seconds = self.ctx.timing.bench_seconds
        self.benched[node] = self.ctx.now + seconds
        text = f"{node} is not let in for {seconds:.0f} s: {why}"
        self.ctx.emit("node_benched", text, self.job, culprit=node)

    def drop_slow(self, node: NodeId) -> None:
        """Leave a straggler out for long."""
        self.benched[node] = self.ctx.now + self.ctx.timing.slow_seconds

    def count(self, fault: Fault, step: int) -> str:
        """A loss that is not finite behind a restore, too, is no bad luck. Why the job can't go
        on, or nothing."""
        if fault.fault == "not_finite":
            self.rollback = max(self.rollback, fault.generation)
            seen = self.not_finite.setdefault(step, set())
            seen.add(fault.generation)
            if len(seen) > 1:
                return f"{fault.evidence}, again after a restore: the same data does it"
        return ""

    def recheck(self, node: NodeId, told: Rechecked, world: World, check: Check) -> Finding | None:
        """What is found once all who computed one grain have told of it."""
        if (told.step, told.grain) < self.rechecking or told.grain != check.grain:
            return None
        if (told.step, told.grain) > self.rechecking:
            self.rechecking, self.rechecks = (told.step, told.grain), {}
            self.rechecked_at = self.ctx.now
        self.rechecks[node] = told.digest
        if self.rechecks.keys() != {world.members[rank] for rank in check.ranks}:
            return None
        return recheck.judge(self.rechecks, told.grain, told.step)

    def quarantine(self, node: NodeId) -> bool:
        """Whoever diverges twice computes wrongly: this job goes on without it where it can.
        Whether it was the second time."""
        self.diverged[node] = self.diverged.get(node, 0) + 1
        if self.diverged[node] == _DIVERGENCES:
            self.benched[node] = inf
            text = f"{node} diverged {_DIVERGENCES} times: the job goes on without it"
            self.ctx.emit("node_quarantined", text, self.job, culprit=node)
        return self.diverged[node] == _DIVERGENCES

    def distrust(self, world: World) -> bool:
        """Trust no state of ``world``, nor of an earlier one; whether that is news."""
        news = self.rollback < world.generation
        self.rollback = max(self.rollback, world.generation)
        return news

    def spoil(self, world: World, state: Stamp) -> None:
        """The same, but for those of worlds that have gone on apart from it. Members differ on
        that ``state``."""
        self.split = Split(max(self.split.world, world.generation), state)

    @property
    def distrusted(self) -> Tag:
        """Up to which world later leaders are to trust no state."""
        return max(self.rollback, self.split.world)

    def adopt(self, world: World) -> None:
        """What earlier leaders knew."""
        self.rollback = max(self.rollback, world.distrusted)
        self.recall(world, world.step)

    def recall(self, world: World, committed: int) -> None:
        """What any leader knew, be it another side's: who computes wrongly does so everywhere, and
        a step kills everywhere."""
        self.ladder.recall(world.tried, self.ctx.now, committed)
        for node, times in world.diverged:
            self.diverged[node] = max(times, self.diverged.get(node, 0))
            if times >= _DIVERGENCES:
                self.benched[node] = inf

    @property
    def quarantined(self) -> list[NodeId]:
        """Nodes that the job goes on without for good."""
        return sorted(n for n, times in self.diverged.items() if times >= _DIVERGENCES)

    def trusted(
        self, node: NodeId, holding: Holding, apart: Collection[Tag] = frozenset()
    ) -> Holding:
        """What counts of what a member says it holds; ``apart``: worlds that have gone on apart
        from what is spoilt."""
        since = self._since(node, holding)
        point = holding.point
        spared = since in apart and point is not None and point.stamp != self.split.state
        spoilt = NO_TAG if spared else self.split.world
        worst = max(self.rollback, spoilt, self.tainted.get(node, NO_TAG))
        if worst != NO_TAG and since <= worst:
            return replace(holding, point=None)
        return holding

    def _since(self, node: NodeId, holding: Holding) -> Tag:
        """The world as of which it has its state."""
        return holding.entered or self.lent.get(node, NO_TAG)

    def all_trusted(
        self, holdings: Mapping[NodeId, Holding], apart: Collection[Tag]
    ) -> dict[NodeId, Holding]:
        """What counts of what members say they hold; ``apart`` as for :meth:`trusted`."""
        found = {n: self.trusted(n, h, apart) for n, h in holdings.items()}
        return without_unproven(self._one_of(found))

    def take_one(self, world: World) -> None:
        """All members of ``world`` are to go on with the state of one of them."""
        self.apart = max(self.apart, world.generation)

    def _one_of(self, holdings: Mapping[NodeId, Holding]) -> Mapping[NodeId, Holding]:
        """Of states that differ though none is wrong only that of the first who has come furthest,
        unless somebody who has come as far has one since."""
        if self.apart == NO_TAG:
            return holdings
        steps = {n: h.point.step for n, h in holdings.items() if h.point is not None}
        old = {n for n in steps if self._since(n, holdings[n]) <= self.apart}
        most = max(steps.values(), default=-1)
        furthest = [n for n, step in steps.items() if step == most]
        keeper = min(furthest) if old.issuperset(furthest) and furthest else None
        return {
            n: replace(h, point=None) if n in old and n != keeper else h
            for n, h in holdings.items()
        }

    def lend(self, node: NodeId, told: Prepared) -> None:
        """A newcomer says what it was brought, if anything."""
        if told.point is not None:
            self.lent[node] = told.generation

    def taint(self, nodes: Iterable[NodeId], world: World) -> None:
        """What these hold since ``world``, or before, is not what the others hold."""
        for node in nodes:
            self.tainted[node] = world.generation

    def heard(self, node: NodeId, holding: Holding) -> None:
        """What a member holds now. If it is nothing, what was wrong is gone with its trainer."""
        if holding.point is None:
            self.tainted.pop(node, None)

    def settled(self) -> None:
        """The next world has others' digests."""
        self.states.clear()
        self.rechecks.clear()
