"""What many runs of the simulator came to, and the worker process that makes them."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from .run import Result, simulate
from .strikes import EVERY_KIND, HEAVY_KINDS
from .wanted import Wanted

_BATCH_SECONDS = 1.0
"""A worker tells of its seeds about this often."""


@dataclass(slots=True)
class Tally:
    """What a number of runs came to."""

    seeds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    """What is no fault, and has to happen too."""
    events: int = 0
    messages: int = 0
    simulated_seconds: float = 0.0
    cpu_seconds: float = 0.0
    problems: list[tuple[int, str]] = field(default_factory=list)

    def add(self, result: Result, cpu_seconds: float) -> None:
        self.seeds += 1
        self.faults += result.faults
        self.seen += result.cluster.seen
        self.events += result.cluster.events
        self.messages += result.cluster.network.messages
        self.simulated_seconds += result.seconds
        self.cpu_seconds += cpu_seconds
        if result.problem:
            self.problems.append((result.setup.seed, result.problem))

    def merge(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.faults += other.faults
        self.seen += other.seen
        self.events += other.events
        self.messages += other.messages
        self.simulated_seconds += other.simulated_seconds
        self.cpu_seconds += other.cpu_seconds
        self.problems += other.problems

    @property
    def total(self) -> int:
        return self.faults.total()

    @property
    def heavy(self) -> int:
        """Crashes, partitions and disk faults."""
        return sum(count for kind, count in self.faults.items() if kind in HEAVY_KINDS)

    @property
    def speed(self) -> float:
        """Simulated seconds in a second of one core."""
        return self.simulated_seconds / max(self.cpu_seconds, 1e-9)

    def line(self) -> str:
        return (
            f"{self.seeds} seeds, {self.total} faults ({self.heavy} crashes, partitions and disk"
            f" faults), {self.simulated_seconds / 3600:.1f} simulated hours,"
            f" {self.speed:.0f} times real time a core, {len(self.problems)} violations"
        )

    def report(self) -> str:
        every = {kind: self.faults[kind] for kind in EVERY_KIND} | self.faults
        return "\n".join(
            [
                "faults by kind:",
                *_rows(every),
                "what else there was:",
                *_rows(self.seen),
                f"simulated hours   {self.simulated_seconds / 3600:.2f}",
                f"messages          {self.messages}",
                f"events            {self.events}",
                f"seconds of a core {self.cpu_seconds:.1f}",
                f"speed             {self.speed:.0f} times real time a core",
                self.line(),
            ]
        )


def _rows(counts: Mapping[str, int]) -> list[str]:
    return [f"  {kind:20} {count:>10}" for kind, count in sorted(counts.items())]


def tally(seeds: Iterator[int], seconds: float, wanted: Wanted) -> Tally:
    """As many of ``seeds`` as fit into ``seconds`` of real time, at least one."""
    found, end = Tally(), time.monotonic() + seconds
    for seed in seeds:
        began = time.process_time()
        result = simulate(wanted.setup(seed))
        found.add(result, time.process_time() - began)
        if time.monotonic() >= end:
            break
    return found


def work(pipe: Connection, first: int, stride: int, wanted: Wanted) -> None:
    """A worker: every ``stride``-th seed, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    seeds = iter(range(first, sys.maxsize, stride))
    with contextlib.suppress(BrokenPipeError):
        while True:
            pipe.send(tally(seeds, _BATCH_SECONDS, wanted))
