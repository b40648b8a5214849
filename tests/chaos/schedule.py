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
    "full disk", "short memory", "unmounted data",
)  # fmt: skip
"""What ends by itself. A link, a partition and a cable concern the witness, too."""
PARTING = ("closed link", "dropped link", "one-way link", "partition", "pulled cable",
           "paused daemon", "paused node")  # fmt: skip
"""After these both sides may go on for a while, and what one of them commits is not used."""
TOTAL = ("every trainer", "every node")
EVERYTHING = (*HARSH, *PASSING, *TOTAL)


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


class Deck:
    """Kinds in an order drawn anew: each comes before one comes again."""

    def __init__(self, dice: random.Random, kinds: Sequence[str]) -> None:
        self.dice, self._kinds = dice, kinds
        self._left: list[str] = []

    def draw(self) -> str:
        self._left = self._left or self.dice.sample(self._kinds, len(self._kinds))
        return self._left.pop()


def _draw_fault(deck: Deck, step: int) -> Fault:
    """One fault: a single kill, several at once, or another kill while the first is recovered."""
    dice = deck.dice
    blows = [_draw_blow(deck, 0.0)]
    while len(blows) < 3 and blows[-1].process not in TOTAL and dice.random() < 0.4:
        blows.append(_draw_blow(deck, dice.choice((0.0, dice.uniform(0.0, 0.8)))))
    total = blows[-1].process in TOTAL
    return Fault(step, dice.randrange(4), tuple(blows), total or dice.random() < 0.7)


def _draw_blow(deck: Deck, after_seconds: float) -> Blow:
    process, rank = deck.draw(), deck.dice.randint(1, 3)
    lasts = deck.dice.uniform(0.5, 4.0) if process in PASSING else 0.0
    return Blow(process, rank, after_seconds, lasts)


def draw(dice: random.Random, steps: int, count: int, harsh: bool = False) -> list[Fault]:
    """``count`` faults, in the first four fifths of a job of ``steps``."""
    at = sorted(dice.sample(range(1, steps * 4 // 5), count))
    deck = Deck(dice, EVERYTHING if harsh else PROCESSES)
    return [_draw_fault(deck, step) for step in at]


def shown(faults: Sequence[Fault]) -> str:
    return "; ".join(str(fault) for fault in faults)
