"""Does a grain have the same bits twice, and what are they? Asked once in each process, before its
first reduction, since exactness stands on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from elasticd.train.states.state import TrainingState
from elasticd.train.states.trees import same_bits
from elasticd.train.steps.layout import Layout, Vector, vector_digest
from elasticd.train.steps.seat import ProbeResult
from elasticd.train.steps.trial import cpu_trial, trial_update

RUNS = 2


@dataclass
class GrainProbe:
    """The runs of grain 0 so far."""

    runs: list[Vector] = field(default_factory=list)
    result: ProbeResult | None = None

    @property
    def wants_grain(self) -> bool:
        """Whether grain 0 has to be computed once more."""
        return self.result is None

    def restart(self) -> None:
        """Forget runs of another state."""
        self.runs.clear()

    def take(self, vector: Vector) -> bool:
        """Take in one run, evaluated; True if it was the last."""
        self.runs.append(vector)
        return len(self.runs) == RUNS

    def conclude(
        self, layout: Layout, state: TrainingState, stamp: str, gradients: Any, seed: int
    ) -> None:
        """Compare the runs, and try one update with ``gradients``, which is undone; where it is
        made on a GPU, another one on the CPU."""
        first, second = self.runs
        repeats = all(same_bits(a, b) for a, b in zip(first, second, strict=True))
        update = trial_update(state, gradients, seed)
        self.result = ProbeResult(
            repeats,
            vector_digest(second),
            update,
            layout.digest(),
            stamp,
            update and cpu_trial(state, gradients, seed, update),
        )
        self.runs.clear()
