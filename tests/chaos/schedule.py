"""Random faults for real clusters. What is killed when is drawn from a seed.

Unless a fault is meant to end everything, it spares one rank, the witness, so that a trainer that
holds the newest state lives on and no committed step may be lost.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

PROCESSES = ("trainer", "reducer", "node")
STOPPED = {"stopped trainer": "trainer", "stopped reducer": "reducer"}
"""Ends of nothing: SIGSTOP, for ever."""
HARSH = (*PROCESSES, "daemon", "restarted daemon", "memory kill", *STOPPED)
PASSING = (
    "paused trainer", "paused daemon", "paused node", "slow trainer",
    "closed link", "dropped link", "one-way link", "partition", "pulled cable",
    "full disk", "short memory",
)  # fmt: skip
"""What ends by itself. A link, a partition and a cable concern the witness, too."""
PARTING = ("closed link", "dropped link", "one-way link", "partition", "pulled cable",
           "paused daemon", "paused node")  # fmt: skip
"""After these both sides may go on for a while, and what one of them commits is not used."""
TOTAL = ("every trainer", "every node")


@dataclass(frozen=True)
class Blow:
    """One fault, ``after_seconds`` behind the one before.

    ``rank`` counts from the witness on.

    ``process`` is of :data:`HARSH` or :data:`PASSING`, or of :data:`TOTAL`, which spares nobody.
    What passes does so after ``seconds``.
    """

    process: str
    rank: int
    after_seconds: float
    seconds: float = 0.0

    def __str__(self) -> str:
        where = "" if self.process in TOTAL else f" {self.rank:+d}"
        lasting = f" for {self.seconds:.1f} s" if self.process in PASSING else ""
        return f"{self.process}{where}{lasting} after {self.after_seconds:.2f} s"


@dataclass(frozen=True)
class Fault:
    """What is killed once ``step`` is committed, and whether dead nodes come back then."""

    step: int
    witness: int
    blows: tuple[Blow, ...]
    revive: bool

    def __str__(self) -> str:
        blows = ", ".join(str(blow) for blow in self.blows)
        return f"at step {self.step}: {blows}{', revived' if self.revive else ''}"

    @property
    def total(self) -> bool:
        """Whether it ends every trainer, so that committed steps may be lost."""
        return any(blow.process in TOTAL for blow in self.blows)

    @property
    def parts(self) -> bool:
        """Whether two sides may go on without each other."""
        return any(blow.process in PARTING for blow in self.blows)


def draw_fault(dice: random.Random, step: int, harsh: bool = False) -> Fault:
    """One fault: a single kill, several at once, or another kill while the first is recovered."""
    if harsh and dice.random() < 0.1:
        blow = Blow(dice.choice(TOTAL), 0, 0.0)
        return Fault(step, 0, (blow,), True)
    blows = [_draw_blow(dice, harsh, 0.0)]
    while len(blows) < 3 and dice.random() < 0.4:
        blows.append(_draw_blow(dice, harsh, dice.choice((0.0, dice.uniform(0.0, 0.8)))))
    return Fault(step, dice.randrange(4), tuple(blows), dice.random() < 0.7)


def _draw_blow(dice: random.Random, harsh: bool, after_seconds: float) -> Blow:
    processes = (HARSH, PASSING)[dice.random() < 0.5] if harsh else PROCESSES
    process, rank = dice.choice(processes), dice.randint(1, 3)
    return Blow(process, rank, after_seconds, dice.uniform(0.5, 4.0) if process in PASSING else 0.0)


def draw(dice: random.Random, steps: int, count: int, harsh: bool = False) -> list[Fault]:
    """``count`` faults, in the first four fifths of a job of ``steps``."""
    at = sorted(dice.sample(range(1, steps * 4 // 5), count))
    return [draw_fault(dice, step, harsh) for step in at]


def shown(faults: Sequence[Fault]) -> str:
    return "; ".join(str(fault) for fault in faults)
