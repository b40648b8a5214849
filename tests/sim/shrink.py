"""From a run that fails to the smallest that was found to fail alike.

Delta debugging (Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input, 2002) over
the list of faults, after simpler cuts: no mishaps of messages, fewer jobs and nodes, a shorter job.
Leaving a fault out also changes what chance makes of everything after it, so each candidate may
fail under any of a few seeds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from .cluster import JobShape, Mishap, Setup, Strike
from .run import Result, simulate

Item = TypeVar("Item")
_SEEDS = 3
"""Of how many seeds one has to fail, for a candidate that differs in more than its faults."""
_MAX_RUNS = 600
_MAX_MISHAPS = 400
"""More of them are dropped all or none."""


def alike(problem: str) -> str:
    """What two failures of one bug have in common: the sentence without its numbers and names."""
    return re.sub(r"\d+@\S+|\b[0-9a-f]{8,}\b|n\d|\d+|\{.*|\[.*", "#", problem)


class Shrinker:
    def __init__(self, failed: Result, say: Callable[[str], object]) -> None:
        self.best = failed
        self.runs = 0
        self._kind = alike(failed.problem)
        self._say = say

    def tries(self, setup: Setup) -> bool:
        """Whether ``setup`` fails alike; then it is the best so far."""
        if self.runs >= _MAX_RUNS:
            return False
        self.runs += 1
        result = simulate(setup)
        if not result.problem or alike(result.problem) != self._kind:
            return False
        self.best = result
        self._say(f"run {self.runs}: {self.size()}")
        return True

    def any_seed(self, setup: Setup) -> bool:
        return any(
            self.tries(replace(setup, seed=setup.seed + n * 1_000_003)) for n in range(_SEEDS)
        )

    def size(self) -> str:
        setup = self.best.setup
        return (
            f"{setup.nodes} nodes, {len(setup.jobs)} jobs of {setup.jobs[0].steps} steps,"
            f" {len(self.best.strikes)} faults, {len(self.best.mishaps)} mishaps,"
            f" {len(self.best.cluster.moments)} lines"
        )

    # --- what is cut ------------------------------------------------------------------------------

    def all(self) -> None:
        best = self.best
        self.tries(replace(best.setup, strikes=best.strikes, mishaps=best.mishaps))
        for _ in range(3):
            before = self.size()
            self._calm()
            self._fewer_nodes()
            self._smaller_jobs()
            self._plainer()
            self._strikes()
            self._mishaps()
            self._sooner()
            if self.size() == before:
                break

    def _calm(self) -> None:
        if self.best.setup.mishaps != ():
            self.any_seed(replace(self.best.setup, mishaps=()))

    def _fewer_nodes(self) -> None:
        least = max(shape.world_min for shape in self.best.setup.jobs)
        for nodes in range(least, self.best.setup.nodes):
            bad = tuple(each for each in self.best.setup.bad if each[0] < nodes)
            if self.any_seed(replace(self.best.setup, nodes=nodes, bad=bad)):
                return

    def _smaller_jobs(self) -> None:
        setup = self.best.setup
        if len(setup.jobs) > 1:
            self.any_seed(replace(setup, jobs=setup.jobs[:1]))
        for shape in _smaller(self.best.setup.jobs[0]):
            rest = self.best.setup.jobs[1:]
            self.any_seed(replace(self.best.setup, jobs=(shape, *rest)))

    def _plainer(self) -> None:
        plain = Setup(seed=0)
        for name in ("drift", "on_the_wire", "message_seconds", "grain_seconds"):
            usual = getattr(plain, name)
            if getattr(self.best.setup, name) != usual:
                self.any_seed(replace(self.best.setup, **{name: usual}))

    def _strikes(self) -> None:
        def fails(kept: Sequence[Strike]) -> bool:
            return self.tries(replace(self.best.setup, strikes=tuple(kept)))

        _delta_debug(self.best.setup.strikes or (), fails)

    def _mishaps(self) -> None:
        def fails(kept: Sequence[Mishap]) -> bool:
            return self.tries(replace(self.best.setup, mishaps=tuple(kept)))

        mishaps = self.best.mishaps
        if 0 < len(mishaps) <= _MAX_MISHAPS:
            _delta_debug(mishaps, fails)

    def _sooner(self) -> None:
        """End the faults right after the last of them."""
        setup = self.best.setup
        strikes = setup.strikes or ()
        last = max((strike.at_seconds for strike in strikes), default=0.0)
        if setup.fault_seconds > last + 2.0:
            self.tries(replace(setup, fault_seconds=last + 1.0))


def _smaller(shape: JobShape) -> Iterator[JobShape]:
    plain = JobShape()
    if shape.grains > 1:
        yield replace(shape, grains=1)
    if shape.steps > 6:
        yield replace(shape, steps=6)
    for name in ("world_max", "spare", "keep", "replicas", "every"):
        if getattr(shape, name) != getattr(plain, name):
            yield replace(shape, **{name: getattr(plain, name)})


def _delta_debug(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool]) -> None:
    """Minimise ``items``: leave out ever smaller parts as long as it still ``fails``."""
    kept, parts = list(items), 2
    while kept:
        size = max(1, len(kept) // parts)
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            if fails(rest):
                kept, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                return
            parts = min(len(kept), 2 * parts)


def shrink(failed: Result, say: Callable[[str], object] = lambda line: None) -> Result:
    """The smallest run found that fails as ``failed`` does."""
    shrinker = Shrinker(failed, say)
    shrinker.all()
    return shrinker.best
