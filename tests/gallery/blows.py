"""What is killed while a script of the gallery trains, and when: drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from tests.gallery.cards import Card

Kind = Literal["trainer", "reducer", "main", "everything"]
"""``main``: the node of rank 0. ``everything``: all daemons and what they started."""
KINDS: tuple[Kind, ...] = get_args(Kind)

FIRST_STEP = 2


@dataclass(frozen=True)
class Blow:
    """One kill, once ``step`` is committed and ``after_seconds`` have passed."""

    kind: Kind
    step: int
    rank: int
    after_seconds: float

    def __str__(self) -> str:
        return f"{self.kind} at {self.step}+{self.after_seconds:.2f}s"


def draw(dice: random.Random, steps: int, ranks: int, kinds: Sequence[Kind]) -> list[Blow]:
    """One blow of each kind, in any order, in the first three quarters of a job."""
    last = max(FIRST_STEP + len(kinds), steps * 3 // 4)
    at = sorted(dice.sample(range(FIRST_STEP, last), len(kinds)))
    order = dice.sample(list(kinds), len(kinds))
    return [
        Blow(kind, step, dice.randrange(ranks), dice.uniform(0.0, 0.3))
        for kind, step in zip(order, at, strict=True)
    ]


def draw_all(dice: random.Random, card: Card, ranks: int) -> list[Blow]:
    """One of each kind that ``card`` isn't spared."""
    kinds = [kind for kind in KINDS if kind not in card.spared]
    return draw(dice, card.steps, ranks, kinds)
