"""How long a member may stay in one phase: learned from the run, charged to who hasn't delivered.

Whoever waits for others is in the phase ``reduce`` and is never late by itself. What is learned is
seconds in a phase, for ``compute`` seconds a grain, so that a larger share is no hang. The first
steps of a new trainer teach nothing and have the generous limit: it may still compile.

A step may also take far longer than all before it: longer samples, a loss that is compiled anew, or
a network that became slow. Nothing tells that from a hang but another try. So a step that was
overstayed has more time in each try, and if it passes then, having taken long, that is learned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal, assert_never

from elasticd.core.words.records import World
from elasticd.core.words.worlds import Progress
from elasticd.types import NodeId, Tag, WorkPhase

FACTOR = 8.0
FLOOR_SECONDS = 4.0
EVALUATE_FACTOR = 10.0
"""Validation may take this many times as long as other code of the script's own."""
LONGEST_FACTOR = 4.0
"""A phase may take this many times as long as it ever did lately, or others took for that step."""
_REMEMBERED = 2000
"""After so many more phases what was the longest counts a third, as it may have been a hiccup."""
GROWTH = 4.0
"""By so much a limit grows with each try of a step that was overstayed, and while no member has
delivered the step: that all hang at once is less likely than that it takes longer."""
_MOST_GROWTHS = 10
_SAMPLES = 200
_ENOUGH = 8
_NEW_STEPS = 2
_BLIND_SECONDS = 2.0
"""A leader that was away for so long knows nothing of what happened meanwhile."""


@dataclass(frozen=True, slots=True)
class Late:
    """A member that has overstayed."""

    node: NodeId
    phase: str
    step: int
    seconds: float
    limit_seconds: float


Clock = WorkPhase | Literal["enter"]
_EXCHANGE = "exchange"
"""Of a reduction what comes when all have delivered."""
_ENTERING: Literal["enter"] = "enter"
"""A member has the world, and its trainer has yet to be heard of: the script's own code may still
run. One that hung before the world was formed never comes out of that."""
_DELIVERED = ("reduce", "update")
"""Who is there has delivered its part of the step."""
_CLOCKS: dict[WorkPhase, WorkPhase] = {"data": "compute"}
"""Loading the samples of a grain and computing it take turns, and share one deadline."""


@dataclass(slots=True)
class _Place:
    phase: Clock
    """Whose clock runs."""
    doing: Clock
    """The phase, as the trainer says it."""
    step: int
    since: float


@dataclass(slots=True)
class _Overstay:
    """A step that was overstayed: it hung, or it takes longer than those before."""

    step: int
    limit_seconds: float
    """What was allowed at first."""
    generation: Tag
    """The last world in which it was."""
    times: int = 0
    """In so many earlier worlds."""


@dataclass(slots=True)
class Patience:
    """Of one job. ``user_code_seconds`` is job.toml's."""

    user_code_seconds: float
    samples: dict[str, deque[float]] = field(default_factory=dict)
    longest: dict[str, float] = field(default_factory=dict)
    """As ``samples``, but the longest, with steps that were overstayed and passed later."""
    passed: dict[str, tuple[int, float]] = field(default_factory=dict)
    """What a phase took somebody in the newest step in which it is over, and which step that is."""
    doubts: dict[str, _Overstay] = field(default_factory=dict)
    """The last step of each phase that was overstayed."""
    new: dict[NodeId, int] = field(default_factory=dict)
    """How many steps the trainer of a member is still to apply to be new no more."""
    world: World | None = None
    places: dict[NodeId, _Place] = field(default_factory=dict)
    told: set[NodeId] = field(default_factory=set)
    """Members whose lateness was told already, in this world and view."""
    before: dict[NodeId, str] = field(default_factory=dict)
    """What members were about when they were last heard of in an earlier world."""
    looked: float = -inf
    limits: dict[str, float | None] = field(default_factory=dict)
    """What :meth:`learned` has found of ``samples``."""

    def enter(self, world: World) -> None:
        """Another world runs."""
        heard = {n: place.phase for n, place in self.places.items() if place.phase != _ENTERING}
        self.before |= heard
        self.world, self.places, self.told = world, {}, set()
        for node, source in zip(world.members, world.sources, strict=True):
            if source != "keep":
                self.new[node] = _NEW_STEPS

    def forget(self) -> None:
        """What was learned holds no more: the work of a step is another."""
        for known in (self.samples, self.limits, self.longest, self.passed, self.doubts):
            known.clear()

    def follow(self) -> None:
        """A new view: who was told may not have heard it."""
        self.told.clear()

    def lose(self, node: NodeId) -> None:
        """Nothing is known any more of where a member is."""
        self.places.pop(node, None)

    def saw(self, node: NodeId, progress: Progress, now: float) -> None:
        """A member's progress."""
        world, place = self.world, self.places.get(node)
        if world is None or progress.generation != world.generation or node not in world.members:
            return
        phase = _CLOCKS.get(progress.phase, progress.phase)
        if place is None:
            self.places[node] = _Place(phase, progress.phase, progress.step, now)
            return
        if (place.phase, place.step) == (phase, progress.step):
            place.doing = progress.phase
            return
        self._learn(node, place, now - place.since)
        self.new[node] = self.new.get(node, 0) - max(0, progress.step - place.step)
        self.places[node] = _Place(phase, progress.phase, progress.step, now)

    def _learn(self, node: NodeId, place: _Place, seconds: float) -> None:
        """That phase is over, and took so long."""
        each, known = seconds / self._units(node, place), place.phase
        step, longest = self.passed.get(known, (-1, 0.0))
        if place.step >= step:
            self.passed[known] = place.step, max(each, longest if place.step == step else 0.0)
        doubt = self._doubt(known, place.step)
        if not self._is_new(node):
            self.samples.setdefault(known, deque(maxlen=_SAMPLES)).append(each)
            self.limits.pop(known, None)
        elif doubt is None or 2 * seconds < doubt.limit_seconds:
            return
        self._lasted(known, each)

    def _lasted(self, known: str, each: float) -> None:
        faded = self.longest.get(known, 0.0) * (1 - 1 / _REMEMBERED)
        self.longest[known] = max(each, faded)

    def exchanged(self, seconds: float, now: float) -> None:
        """All had delivered a step for so long when one of them came further."""
        if now - self.looked <= _BLIND_SECONDS:
            self._lasted(_EXCHANGE, seconds)

    def give_up(self, limit_seconds: float) -> None:
        """All have delivered their step, and nothing has moved for so long."""
        assert self.world is not None
        self._take_doubt(_EXCHANGE, self._delivered(), limit_seconds, self.world.generation)

    def _is_new(self, node: NodeId) -> bool:
        return self.new.get(node, 0) > 0

    def _doubt(self, known: str, step: int) -> _Overstay | None:
        """Whether that step was overstayed in that phase."""
        doubt = self.doubts.get(known)
        return doubt if doubt is not None and doubt.step == step else None

    def _tries(self, known: str, step: int) -> int:
        """In how many earlier worlds it was."""
        doubt, world = self._doubt(known, step), self.world
        if doubt is None or world is None:
            return 0
        return doubt.times + (doubt.generation != world.generation)

    def _units(self, node: NodeId, place: _Place) -> int:
        """What is learned for each: the grains that the member computes, if any; else 1."""
        return max(1, self._grains(node, place.step)) if place.phase == "compute" else 1

    def _grains(self, node: NodeId, step: int) -> int:
        """Of the member's share in the step behind ``step``."""
        assert self.world is not None
        world = self.world
        shares = world.shares_now if step == world.step else world.shares
        share = shares[world.members.index(node)]
        return sum(end - start for start, end in share)

    def limit(self, node: NodeId) -> float:
        """Seconds that ``node`` may stay where it is."""
        place = self.places.get(node)
        if place is None:
            return inf
        match place.phase:
            case "user":
                return self.user_code_seconds
            case "enter":
                return self.coming(node)
            case "evaluate":
                return EVALUATE_FACTOR * self.user_code_seconds
            case "compute" | "update":
                learned = self.learned(place.phase)
                if learned is None or self._is_new(node):
                    return self.user_code_seconds
                return self._of_step(place, learned, self._units(node, place))
            case "data" | "reduce" | "idle" | "paused":
                return inf
            case _:
                assert_never(place.phase)

    def _of_step(self, place: _Place, learned: float, units: int) -> float:
        step, took = self.passed.get(place.phase, (-1, 0.0))
        longest = max(self.longest.get(place.phase, 0.0), took if step == place.step else 0.0)
        usual = max(FLOOR_SECONDS, learned * units)
        growths = self._tries(place.phase, place.step) + self._is_foremost(place)
        return self._grown(usual, LONGEST_FACTOR * longest * units, growths)

    def _grown(self, usual: float, longest: float, growths: int) -> float:
        """Beyond what is ``usual`` a limit has its bound."""
        grown = max(usual, longest) * GROWTH ** min(growths, _MOST_GROWTHS)
        return max(usual, min(grown, self.user_code_seconds))

    def _is_foremost(self, place: _Place) -> bool:
        """Whether nobody has come further, of those who have something to do in that step."""
        mine = (place.step, place.phase in _DELIVERED)
        return not any(
            (other.step, other.phase in _DELIVERED) > mine
            and (place.phase == "update" or self._grains(node, place.step))
            for node, other in self.places.items()
        )

    def coming(self, node: NodeId) -> float:
        """Seconds until its trainer comes to a world from the script's own code."""
        evaluates = self.before.get(node) == "evaluate"
        return self.user_code_seconds * (EVALUATE_FACTOR if evaluates else 1)

    def learned(self, phase: str) -> float | None:
        """FACTOR times the slow quantile of what was seen; None while too little was."""
        if phase not in self.limits:
            seen = sorted(self.samples.get(phase, ()))
            slow = seen[int(0.95 * (len(seen) - 1))] if len(seen) >= _ENOUGH else None
            self.limits[phase] = None if slow is None else FACTOR * slow
        return self.limits[phase]

    def reduce_limit(self, default: float) -> float:
        """Seconds that a reduction to which all have delivered may stand still; what is learned of
        reductions has waiting in it, so alone it makes the limit no longer."""
        learned = self.learned("reduce")
        usual = default if learned is None else min(default, max(FLOOR_SECONDS, learned))
        longest = LONGEST_FACTOR * self.longest.get(_EXCHANGE, 0.0)
        return self._grown(usual, longest, self._tries(_EXCHANGE, self._delivered()))

    def _delivered(self) -> int:
        """The step behind which all members have delivered one."""
        return min((place.step for place in self.places.values()), default=-1)

    def late(self, now: float, generation: Tag) -> list[Late]:
        """Members that have overstayed, each told once in a world."""
        if now - self.looked > _BLIND_SECONDS:
            for place in self.places.values():
                place.since = now
        self.looked = now
        if self.world is None or self.world.generation != generation:
            return []
        for node in self.world.members:
            if node not in self.places:
                self.places[node] = _Place(_ENTERING, _ENTERING, self.world.step, now)
        found = []
        for node, place in self.places.items():
            limit, seconds = self.limit(node), now - place.since
            if node not in self.told and seconds >= limit:
                self.told.add(node)
                found.append(Late(node, place.doing, place.step + 1, seconds, limit))
        for each in found:
            place = self.places[each.node]
            self._take_doubt(place.phase, place.step, each.limit_seconds, generation)
        return found

    def _take_doubt(self, known: str, step: int, limit: float, generation: Tag) -> None:
        """A member has overstayed, and others may yet in this world."""
        doubt = self._doubt(known, step)
        if doubt is None:
            self.doubts[known] = _Overstay(step, limit, generation)
        elif doubt.generation != generation:
            doubt.generation, doubt.times = generation, doubt.times + 1

    def deadlines(self) -> list[float]:
        """When somebody may become late."""
        places: Mapping[NodeId, _Place] = self.places
        return [p.since + self.limit(n) for n, p in places.items() if n not in self.told]
