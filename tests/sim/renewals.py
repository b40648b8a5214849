"""Another MLX on all nodes, in the middle of a job: what was computed with two of them is no more
what one of them makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elasticd.types import Point, Stamp, next_stamp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from elasticd.core.words.records import JobRecord, World

    from .cluster import Cluster
    from .trainer import Trainer

MLX = "mlx"


@dataclass(slots=True)
class Renewals:
    """Of one run."""

    release: int = 0
    """Of MLX, as it is installed everywhere; whoever begins now has it."""
    made: dict[Stamp, frozenset[str]] = field(default_factory=dict)
    """With which releases the steps were made that led to a state."""

    def fingerprint(self, usual: dict[str, str]) -> dict[str, str]:
        return {**usual, MLX: str(self.release)}

    def reduced(self, world: World, step: int, at: Point, trainers: Iterable[Trainer]) -> None:
        """A step was made from the state ``at``."""
        releases = {trainer.built[MLX] for trainer in trainers}
        after = next_stamp(at.stamp, world.generation, step)
        self.made[after] = self.made.get(at.stamp, frozenset()).union(releases)

    def told(self, why: str) -> str:
        """Why a leader may not say so, or nothing."""
        if "MLX is" in why and not self.release:
            return f"nobody has changed MLX, and the job is not exact: {why}"
        return ""

    def ended(self, cluster: Cluster, record: JobRecord) -> str:
        """What is called exact was made with one release; what is wrong, or nothing."""
        if record.inexact or cluster.mixture.mixed:
            return ""
        if any(len(self.made.get(m.stamp, ())) > 1 for m in cluster.last_manifests(record)):
            return f"{record.id} is called exact, and was made with two releases of MLX"
        return ""
