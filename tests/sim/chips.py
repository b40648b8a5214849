"""Nodes whose chips round otherwise: each makes of one state and one gradient bits of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from elasticd.core.words.trainers import TrainerProbed
from elasticd.types import Point

from .disk import drift_in

if TYPE_CHECKING:
    from elasticd.core.words.records import JobRecord

    from .cluster import Cluster
    from .trainer import Trainer

Made = Literal["gpu", "cpu"]
ON_CPU = -1
"""Stands for every chip's CPU, where they have the same bits."""


@dataclass(frozen=True, slots=True)
class Chips:
    """``of_nodes``: each node's, by number. ``show``: a process's first grain and update have other
    bits already; else only what comes of many updates has. ``cpu``: only updates have, and none
    that are made on the CPU."""

    of_nodes: tuple[int, ...] = ()
    show: bool = True
    cpu: bool = False

    @property
    def differ(self) -> bool:
        return any(self.of_nodes)

    def of(self, number: int) -> int:
        return self.of_nodes[number] if number < len(self.of_nodes) else 0


@dataclass(slots=True)
class Places:
    """Where the updates were made that led to a state: all of a history at the same place."""

    made: dict[tuple[int, str], frozenset[Made]] = field(default_factory=dict)
    """By the state's step and drift."""

    def updates(self, trainer: Trainer, step: int, before: str, *, on_cpu: bool) -> None:
        """An update has led to ``step``. A leader of an earlier version doesn't know where they are
        made."""
        one: Made = "cpu" if on_cpu else "gpu"
        after = step, trainer.drift
        found: frozenset[Made] = frozenset((*self.made.get((step - 1, before), ()), one))
        known = self.made.get(after)
        self.made[after] = found if known is None or len(found) < len(known) else known
        if len(found) > 1 and not trainer.cluster.mixture.mixed:
            trainer.cluster.checkers.broken(
                f"{trainer.name} makes the update to step {step} on the {one}, and earlier ones"
                " were made elsewhere"
            )

    def ended(self, cluster: Cluster, record: JobRecord) -> str:
        """What is called exact had its updates made at one place; what is wrong, or nothing."""
        worlds = [w for w in cluster.checkers.forms.values() if w.job == record.id]
        since = min((w.generation for w in worlds if w.on_cpu), default=None)
        unaware = since and any(w.generation > since and not w.on_cpu for w in worlds)
        if record.inexact or unaware:
            return ""
        last = cluster.last_manifests(record)
        drifts = {drift for manifest in last for drift in drift_in(manifest)}
        if any(len(self.made.get((record.step, drift), ())) > 1 for drift in drifts):
            return f"{record.id} is called exact, and its updates were made here and there"
        return ""


def probed(trainer: Trainer) -> str:
    """What is added to the digest of a grain."""
    chips = trainer.cluster.setup.chips
    return f" by {trainer.chip}" if chips.show and trainer.chip and not chips.cpu else ""


def probe_of(trainer: Trainer, point: Point) -> TrainerProbed:
    """What a fresh process comes to at this state."""
    bits, chips = probed(trainer), trainer.cluster.setup.chips
    update = f" by {trainer.chip}" if chips.show and trainer.chip else ""
    return TrainerProbed(
        True, f"g{point.step}{bits}", f"u{update}", "l", point.stamp, cpu_update=f"c{bits}"
    )


def mixed(drifts: Sequence[str]) -> str:
    """How far a state is that was put together from parts of states that are so far."""
    if len({*drifts}) == 1:
        return drifts[0]
    return hashlib.blake2b(" ".join(drifts).encode(), digest_size=4).hexdigest()


def drifted(drift: str, chip: int) -> str:
    """How far a state is from that which chip 0 makes alone, after one more update on ``chip``."""
    if not drift and not chip:
        return ""
    return hashlib.blake2b(f"{drift} {chip}".encode(), digest_size=4).hexdigest()
