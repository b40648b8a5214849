"""Ways to do the same thing, in turns, so that all see the same machine."""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter


@dataclass
class Turns:
    """What each turn of one way took; ``cpu`` is the whole process's, all threads'."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def times(self, base: Turns) -> float:
        """How many times as long as ``base`` it took: the median over the rounds, since the two
        turns of one round are neighbours in time."""
        pairs = zip(self.seconds, base.seconds, strict=True)
        return statistics.median(mine / other for mine, other in pairs)


def take_turns(
    ways: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    before: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
) -> dict[str, Turns]:
    """Do each way once a round, in an order drawn anew, after a round that does not count.

    ``before`` and ``after`` each turn cost no time; what the latter's work costs in CPU is the
    turn's.
    """
    taken = {name: Turns() for name in ways}
    order = random.Random(0)
    for number in range(rounds + 1):
        for name in order.sample(list(ways), len(ways)):
            before()
            cpu, began = _cpu(), perf_counter()
            ways[name]()
            seconds = perf_counter() - began
            after()
            if number:
                taken[name].seconds.append(seconds)
                taken[name].cpu.append(_cpu() - cpu)
    return taken


def _cpu() -> float:
    times = os.times()
    return times.user + times.system


def row(name: str, value: str, *notes: str) -> None:
    """One line of a table."""
    print(f"  {name:<44} {value:>14} {'  '.join(notes):>22}".rstrip(), flush=True)
