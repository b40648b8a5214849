"""How fast members compute and exchange, what shares follow from that, and who is a straggler.

Members say how long a grain takes them, and a reduction. Who computes longest waits for nobody in
that, so the shortest one is what the wire takes. Shares follow with hysteresis: they move when the
same gain was there for several steps in a row and repays the pause that moving costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from elasticd.recovery.regroup import Shares, shares, step_seconds, vectors_sent
from elasticd.types import NodeId

GAIN = 0.2
"""Of a step's seconds: less is not worth a change."""
LEAST_GAIN_SECONDS = 0.01
"""Of a step: less is within what steps differ by themselves, however many are left. Nor is a
straggler who holds a step up by less."""
STEPS, MOST_STEPS = 8, 256
"""For so many committed steps in a row the gain must be there; twice as many after each change."""
PAUSE_SECONDS = 0.4
REPAID = 3.0
"""What a change of shares costs; the steps that are left must repay it so many times."""
SLOW, SLOW_AGAIN = 3.0, 2.0
"""So many times as slow as the others' median makes a straggler; below the second it is none."""
SLOW_STEPS = 12
"""For so many steps in a row; twice as many each time that it is one again, up to MOST_STEPS."""
DROP_GAIN = 0.1


@dataclass(frozen=True, slots=True)
class MemberPace:
    """What one member said last: medians over its last few grains, updates and reductions of long
    vectors; 0: not known."""

    grain_seconds: float
    update_seconds: float
    reduce_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Straggler:
    node: NodeId
    ratio: float
    reason: str
    since: float
    """When it was first seen to be so slow, as the caller counts seconds."""


@dataclass(frozen=True, slots=True)
class Move:
    """New shares that are worth a pause."""

    shares: Shares
    reason: str


@dataclass(slots=True)
class Speeds:
    """Of the members of one job. ``settled`` is what shares are dealt by."""

    paces: dict[NodeId, MemberPace] = field(default_factory=dict)
    settled: dict[NodeId, float] = field(default_factory=dict)
    settled_wire: float = 0.0
    """Seconds that a rank takes to send one vector, in the measure of ``settled``; 0: not known."""
    idle_update_seconds: dict[NodeId, float] = field(default_factory=dict)
    """Of members that compute nothing: how long an update took when a grain was last timed."""
    least_seconds: dict[NodeId, float] = field(default_factory=dict)
    """The fewest that a grain took each member. Who waits or sleeps in a grain is as slow on a
    machine with nothing else to do, while its updates are not."""
    needed: int = STEPS
    gains: int = 0
    """Steps in a row in which other shares would have gained enough."""
    slow_steps: dict[NodeId, int] = field(default_factory=dict)
    slow_since: dict[NodeId, float] = field(default_factory=dict)
    slow_needed: dict[NodeId, int] = field(default_factory=dict)
    """Steps in a row in which it must be slow to be told of, once it was."""
    told: set[NodeId] = field(default_factory=set)

    def saw(self, node: NodeId, pace: MemberPace) -> None:
        """A member's own measurements. Who computes nothing keeps its last grain."""
        known = self.paces.get(node)
        if pace.grain_seconds > 0:
            self.paces[node] = pace
            self.idle_update_seconds[node] = pace.update_seconds
            least = self.least_seconds.get(node, pace.grain_seconds)
            self.least_seconds[node] = min(least, pace.grain_seconds)
        elif known is not None:
            self.paces[node] = replace(pace, grain_seconds=known.grain_seconds)

    def foresee(self, seconds: Mapping[NodeId, float]) -> None:
        """Relative seconds of a grain, from before members have told theirs."""
        self.settled.update(seconds)

    def forget(self) -> None:
        """Grains have another size now."""
        self.paces.clear()
        self.settled.clear()
        self.settled_wire = 0.0
        self.idle_update_seconds.clear()
        self.least_seconds.clear()
        self.restart()

    def restart(self) -> None:
        """Another world: count again."""
        self.gains = 0
        self.slow_steps.clear()

    def seconds(self, node: NodeId) -> float:
        """Of a grain, as ``node`` computes it now; 0: not known. Who computes nothing is taken to
        have changed as its updates have, and not to be faster than it ever was and all others."""
        pace = self.paces.get(node)
        if pace is None:
            return 0.0
        then = self.idle_update_seconds.get(node, 0.0)
        changed = pace.update_seconds / then if then > 0 and pace.update_seconds > 0 else 1.0
        others = (other.grain_seconds for each, other in self.paces.items() if each != node)
        seen = min((self.least_seconds.get(node, 0.0), *others))
        return max(pace.grain_seconds * changed, seen)

    def weights(self, members: Sequence[NodeId]) -> tuple[float, ...]:
        """What shares of ``members`` are dealt by: relative seconds a grain."""
        return _filled([self.settled.get(node, 0.0) for node in members])

    # --- after each committed step ----------------------------------------------------------------

    def judge(
        self,
        members: Sequence[NodeId],
        grains: int,
        dealt: Shares,
        steps_left: int,
        *,
        walks: bool = False,
    ) -> Move | None:
        """Whether other shares are worth a pause by now; if so they are settled.

        ``walks``: sums are made along the ring, so shares decide how many vectors are sent.
        """
        now = [self.seconds(node) for node in members]
        if len(members) < 2 or not all(now):
            return None
        wire = self._wire_seconds(members, dealt) if walks else 0.0
        pace, weight = _rounded(now), round(wire / min(now), 1)
        other = shares(grains, len(members), pace, weight)
        before, after = step_seconds(dealt, now, wire), step_seconds(other, now, wire)
        gain = before - after
        if gain < _least_gain(before, GAIN) or gain * steps_left < REPAID * PAUSE_SECONDS:
            self.gains = 0
            return None
        self.gains += 1
        if self.gains < self.needed:
            return None
        self.gains, self.needed = 0, min(2 * self.needed, MOST_STEPS)
        self.settled, self.settled_wire = dict(zip(members, pace, strict=True)), weight
        counts = ", ".join(
            f"{n} {_count(old)} to {_count(new)}"
            for n, old, new in zip(members, dealt, other, strict=True)
            if _count(old) != _count(new)
        )
        what = "speed and the wire" if weight else "speed"
        gained = f"{after:.3f} instead of {before:.3f} s a step"
        return Move(other, f"shares follow {what}: {counts} grains, {gained}")

    def _wire_seconds(self, members: Sequence[NodeId], dealt: Shares) -> float:
        """Of one vector, as shares of ``dealt`` took it; 0: not known."""
        told = [self.paces[node].reduce_seconds for node in members]
        sent = vectors_sent(dealt)
        return min(told) / sent if sent > 0 else 0.0

    def stragglers(
        self, members: Sequence[NodeId], dealt: Shares, seconds: float
    ) -> list[Straggler]:
        """Members that have become too slow; each is told once, until it is as fast as others.

        ``dealt``: their shares. ``seconds``: what time it is now.
        """
        now = {node: self.seconds(node) for node in members}
        if len(members) < 2 or not all(now.values()):
            return []
        found = []
        for (node, own), share in zip(now.items(), dealt, strict=True):
            others = median(each for other, each in now.items() if other != node)
            ratio = own / others
            if ratio < SLOW_AGAIN:
                self.told.discard(node)
            held_up = (own - others) * max(1, _count(share))
            slow = ratio >= SLOW and held_up >= LEAST_GAIN_SECONDS
            self.slow_steps[node] = self.slow_steps.get(node, 0) + 1 if slow else 0
            if self.slow_steps[node] == 1:
                self.slow_since[node] = seconds
            needed = self.slow_needed.get(node, SLOW_STEPS)
            if self.slow_steps[node] >= needed and node not in self.told:
                self.told.add(node)
                self.slow_needed[node] = min(2 * needed, MOST_STEPS)
                text = (
                    f"a grain takes {own:.3f} s here and {others:.3f} s elsewhere (median),"
                    f" for {self.slow_steps[node]} steps"
                )
                found.append(Straggler(node, ratio, text, self.slow_since[node]))
        return found

    def better_without(self, node: NodeId, members: Sequence[NodeId], grains: int) -> str:
        """Why the others would be faster without ``node``, or nothing."""
        now = {n: self.seconds(n) for n in members}
        rest = [n for n in members if n != node]
        if not rest or not all(now.values()):
            return ""
        with_it = self._step(list(members), now, grains)
        without = self._step(rest, now, grains)
        if with_it - without < _least_gain(with_it, DROP_GAIN):
            return ""
        return f"a step takes {without:.3f} s without {node} and {with_it:.3f} s with it"

    def _step(self, members: list[NodeId], now: Mapping[NodeId, float], grains: int) -> float:
        seconds = [now[n] for n in members]
        dealt = shares(grains, len(members), _rounded(seconds))
        updates = [self.paces[n].update_seconds for n in members]
        each = zip(dealt, seconds, updates, strict=True)
        return max(_count(share) * own + update for share, own, update in each)


def _least_gain(before: float, part: float) -> float:
    """What a step that takes ``before`` seconds has to gain, so that it is worth a change."""
    return max(LEAST_GAIN_SECONDS, part * before)


def _count(share: Sequence[tuple[int, int]]) -> int:
    return sum(end - start for start, end in share)


def _rounded(seconds: Sequence[float]) -> tuple[float, ...]:
    """To three digits of the fastest: what differs by less is the same."""
    fastest = min(seconds)
    return tuple(round(each / fastest, 2) for each in seconds)


def _filled(weights: Sequence[float]) -> tuple[float, ...]:
    """Who was not timed yet is taken to be as fast as most."""
    known = [each for each in weights if each > 0]
    usual = median(known) if known else 1.0
    return tuple(each if each > 0 else usual for each in weights)
