"""How much of the undisturbed progress is left, with a fault a minute and with one in ten minutes.

Blocks of time, with undisturbed ones before, between and behind: each is compared with the pace of
its two neighbours, because the pace of a machine drifts by as much as rare faults cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random

import psutil

from elasticd.cli.demo_watch import Watch

KINDS = ("trainer", "reducer", "node")
CALM_SECONDS = 60.0
OFTEN_SECONDS, RARELY_SECONDS = 60.0, 600.0
"""Between two faults."""
TARGETS = {"a fault a minute": 0.88, "a fault in ten minutes": 0.98}


@dataclass(frozen=True)
class Block:
    """So many steps were committed in a while with so many faults."""

    seconds: float
    steps: int
    faults: int

    @property
    def pace(self) -> float:
        return self.steps / self.seconds


@dataclass(frozen=True)
class Subject:
    """The job, and how to hurt it."""

    watch: Watch
    dice: Random
    settle: Callable[[], None]
    strike: Callable[[str, int], AbstractContextManager[object]]
    """With the fault's kind and number; what is cleared away afterwards is, at the end."""


def measure(subject: Subject, minutes: float) -> dict[str, float]:
    """Shares of the undisturbed progress; ``minutes`` of the first one, ten of the second."""
    plan = dict(zip(TARGETS, ((60 * minutes, OFTEN_SECONDS), (RARELY_SECONDS,) * 2), strict=True))
    shares = {}
    before = _calm(subject)
    for name, (seconds, period) in plan.items():
        block = _shown(name, _block(subject, seconds, period))
        after = _calm(subject)
        shares[name] = block.pace / (
            (before.steps + after.steps) / (before.seconds + after.seconds)
        )
        before = after
    print("\nOf the undisturbed progress")
    for name, share in shares.items():
        print(f"{name:24}{share:7.1%}   target {TARGETS[name]:.0%}", flush=True)
    return shares


def _calm(subject: Subject) -> Block:
    return _shown("undisturbed", _block(subject, CALM_SECONDS, 0.0))


def _shown(name: str, block: Block) -> Block:
    text = f"{name:24}{block.steps:7} steps in {block.seconds:.1f} s"
    print(f"{text}, {block.faults} faults, {block.pace:.2f} steps a second", flush=True)
    return block


def _block(subject: Subject, seconds: float, period: float) -> Block:
    """One fault somewhere in each ``period``, not so late that it costs what comes behind."""
    subject.settle()
    watch, starts = subject.watch, range(int(seconds / period) if period else 0)
    moments = [(number + subject.dice.uniform(0.2, 0.6)) * period for number in starts]
    start, first, faults = time.monotonic(), watch.step, 0
    while (passed := time.monotonic() - start) < seconds:
        watch.look(0.1)
        if len(moments) > faults and passed >= moments[faults] and watch.ranks:
            try:
                with subject.strike(KINDS[faults % len(KINDS)], faults):
                    faults += 1
            except psutil.NoSuchProcess:
                pass  # it ended just before: once more
    watch.look(0.0)
    return Block(time.monotonic() - start, watch.step - first, faults)
