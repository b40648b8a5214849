"""Scripts that keep a thing otherwise on each rank, as if it were the same: they are named."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from elasticd.core.words import effects as e
from elasticd.recovery.divergence import MODEL_PART
from elasticd.types import JobId, Tag

from .cluster import JobShape

THING = "run.track('seen', …)"
REASON = f"{THING} differs between ranks after step "
_UNNAMED_SECONDS = 5.0
"""For so long all members of one world may tell of their states, and nobody names the thing: what
they say may come late, and leaders may die."""


def variant(shape: JobShape, host: str, step: int) -> int:
    """What the thing is on a node; 0: the same everywhere, as it is before the first step."""
    return 1 + sum(map(ord, host)) % 14 if shape.by_rank and step > 0 else 0


def parts(digest: str, variant: int) -> tuple[tuple[str, str], ...]:
    """What a trainer tells of its state."""
    return ((MODEL_PART, digest), (THING, str(variant))) if variant else ()


@dataclass(slots=True)
class ByRank:
    """What was told of such jobs."""

    told: dict[tuple[JobId, Tag, int], dict[int, float]] = field(default_factory=dict)
    """Of a world's state after a step, what the thing is, and when that was told."""

    def tells(self, job: JobId, generation: Tag, step: int, variant: int, now: float) -> None:
        """A trainer has told of its state."""
        if variant:
            self.told.setdefault((job, generation, step), {})[variant] = now

    def emitted(self, emit: e.Emit, shape: JobShape, faults: Counter[str]) -> str:
        """What is wrong with an event of a job, or nothing."""
        if emit.kind == "state_differs" and not (shape.by_rank and emit.reason.startswith(REASON)):
            return f"{emit.job} has nothing that differs, and is told: {emit.reason}"
        diverged = emit.kind == "fault_detected" and emit.fields["fault"] == "divergence"
        if diverged and shape.by_rank and not faults["diverge"]:
            return f"what a script keeps by rank is called a divergence: {emit.reason}"
        return ""

    def ended(self, job: JobId, sizes: dict[Tag, int]) -> str:
        """What is wrong with a job that has finished, or nothing; ``sizes`` of its worlds."""
        for world, size in sizes.items():
            times = [
                max(found.values())
                for (of, generation, _), found in self.told.items()
                if (of, generation) == (job, world) and len(found) == size > 1
            ]
            if times and max(times) - min(times) > _UNNAMED_SECONDS:
                return f"{job} has finished, and nobody has named what differs in {world}"
        return ""
