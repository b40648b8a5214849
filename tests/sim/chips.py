"""Nodes whose chips round otherwise: each makes of one state and one gradient bits of its own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elasticd.core.words.trainers import TrainerProbed
from elasticd.types import Point

if TYPE_CHECKING:
    from .trainer import Trainer


@dataclass(frozen=True, slots=True)
class Chips:
    """``of_nodes``: each node's, by number. ``show``: a process's first grain and update have other
    bits already; else only what comes of many updates has."""

    of_nodes: tuple[int, ...] = ()
    show: bool = True

    @property
    def differ(self) -> bool:
        return any(self.of_nodes)

    def of(self, number: int) -> int:
        return self.of_nodes[number] if number < len(self.of_nodes) else 0


def probed(trainer: Trainer) -> str:
    """What is added to the digests of a grain and of an update."""
    chips = trainer.cluster.setup.chips
    return f" by {trainer.chip}" if chips.show and trainer.chip else ""


def probe_of(trainer: Trainer, point: Point) -> TrainerProbed:
    """What a fresh process comes to at this state."""
    bits = probed(trainer)
    return TrainerProbed(True, f"g{point.step}{bits}", f"u{bits}", "l", point.stamp)


def drifted(drift: str, chip: int) -> str:
    """How far a state is from that which chip 0 makes alone, after one more update on ``chip``."""
    if not drift and not chip:
        return ""
    return hashlib.blake2b(f"{drift} {chip}".encode(), digest_size=4).hexdigest()
