"""Ways to do the same thing, in turns, so that all see the same machine."""

from __future__ import annotations

import functools
import mmap
import os
import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
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


def compare(
    what: str,
    ways: Mapping[str, Callable[[], int]],
    rounds: int,
    folder: Path | None = None,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Rates of ways to move the same bytes; the first is the measure of the others."""
    counts = {}

    def measured(name: str) -> None:
        counts[name] = ways[name]()

    def after() -> None:
        for path in folder.glob("*") if folder is not None else ():
            path.unlink()

    turns = {name: functools.partial(measured, name) for name in ways}
    taken = take_turns(turns, rounds, before=before, after=after)
    base = next(iter(taken.values()))
    for name, turn in taken.items():
        row(
            f"{what}: {name}",
            f"{counts[name] / statistics.median(turn.seconds) / 1e9:10.2f} GB/s",
            f"{1 / turn.times(base):7.2f} of it",
            f"CPU {statistics.median(turn.cpu):.2f} s",
        )


def warm(size: int) -> None:
    """Leave so much memory free that the machine has used a moment ago."""
    with mmap.mmap(-1, size) as memory:
        for page in range(0, size, mmap.PAGESIZE):
            memory[page] = 1
