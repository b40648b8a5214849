"""How much of the undisturbed progress is left, with a fault a minute and with one in ten minutes.

Minutes with one fault each, between half minutes without: a machine's pace drifts by more than a
fault costs, so each is compared with its two neighbours. What a fault costs is the same if the next
one comes later: the second share follows from the first.
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
CALM_SECONDS = 30.0
OFTEN_SECONDS, RARELY_SECONDS = 60.0, 600.0
"""Between two faults."""
OFTEN, RARELY = "a fault a minute", "a fault in ten minutes"
TARGETS = {OFTEN: 0.88, RARELY: 0.98}


@dataclass(frozen=True)
class Block:
    """So many steps were committed in a while."""

    seconds: float
    steps: int

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


def measure(subject: Subject, faults: int) -> dict[str, float]:
    """Shares of the undisturbed progress, from so many minutes with a fault each."""
    steps = expected = 0.0
    before = _block(subject, CALM_SECONDS)
    for number in range(faults):
        block = _block(subject, OFTEN_SECONDS, number)
        after = _block(subject, CALM_SECONDS)
        undisturbed = (before.pace + after.pace) / 2
        text = f"{block.pace:6.2f} steps a second, {undisturbed:.2f} in the calm around it"
        print(f"{KINDS[number % len(KINDS)]:10}{text}", flush=True)
        steps, expected = steps + block.steps, expected + undisturbed * block.seconds
        before = after
    lost = 1 - steps / expected
    shares = {OFTEN: 1 - lost, RARELY: 1 - lost * OFTEN_SECONDS / RARELY_SECONDS}
    print(f"\nA fault costs {lost * OFTEN_SECONDS:.1f} s of progress, in the mean of {faults}")
    for name, share in shares.items():
        print(f"{name:24}{share:7.1%}   target {TARGETS[name]:.0%}", flush=True)
    return shares


def _block(subject: Subject, seconds: float, fault: int | None = None) -> Block:
    """With the fault of that number, if any, not so late that it costs what comes behind."""
    subject.settle()
    watch, due = subject.watch, seconds * subject.dice.uniform(0.2, 0.6)
    start, first = time.monotonic(), watch.step
    while (passed := time.monotonic() - start) < seconds:
        watch.look(0.1)
        if fault is not None and passed >= due and watch.ranks:
            try:
                with subject.strike(KINDS[fault % len(KINDS)], fault):
                    fault = None
            except psutil.NoSuchProcess:
                pass  # it ended just before: once more
    watch.look(0.0)
    return Block(time.monotonic() - start, watch.step - first)
