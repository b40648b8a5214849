"""Does a grain have the same bits twice, and what are they? Asked once in each process, before its
first reduction, since exactness stands on it. And does it leave the model's buffers as other grains
do?"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from elasticd.train.states.state import TrainingState
from elasticd.train.states.summed import is_statistic
from elasticd.train.states.trees import same_bits
from elasticd.train.steps import randomness
from elasticd.train.steps.layout import Layout, Vector, vector_digest
from elasticd.train.steps.seat import ProbeResult
from elasticd.train.steps.trial import cpu_trial, trial_update

RUNS = 2
_ROUNDED = 1e-2
"""A mean of equal values may differ from them by this, in any dtype."""
_DRAWS_ONCE = (
    "the loss drew random numbers at its first pass that it did not draw when it made the same pass"
    " again: it keeps something that was drawn (if projection is None: projection = …), or an"
    " mx.compile of the script's own has fixed it. A process that joins later has another, and is"
    " left out. Make it above the loop, and give it to what is compiled"
)


@dataclass
class GrainProbe:
    """The runs of grain 0 so far."""

    runs: list[Vector] = field(default_factory=list)
    result: ProbeResult | None = None
    left: Mapping[str, mx.array] = field(default_factory=dict)
    """The state that the first step's grain has changed, as it left it; until it was compared."""
    drawn: list[str] = field(default_factory=list)
    """Where generators stood behind the first passes of this process, which are of one grain."""

    @property
    def wants_grain(self) -> bool:
        """Whether grain 0 has to be computed once more."""
        return self.result is None

    def restart(self) -> None:
        """Forget runs of another state."""
        self.runs.clear()
        self.left = {}
        self.drawn += self.drawn[:1]  # what comes next isn't the same pass

    def passed(self) -> None:
        """A pass was made, from where its grain seeds all generators."""
        if len(self.drawn) < RUNS:
            with suppress(Exception):  # a trace of the script's own may have left no number there
                self.drawn.append(randomness.standing())

    def named_draws(self) -> list[str]:
        """What to say, in sentences, where the first pass has drawn what no other will."""
        return [_DRAWS_ONCE] if len({*self.drawn[:RUNS]}) > 1 else []

    def take(self, vector: Vector, left: Mapping[str, mx.array]) -> bool:
        """Take in one run, evaluated; True if it was the last."""
        self.runs.append(vector)
        self.left = left
        return len(self.runs) == RUNS

    def conclude(
        self,
        layout: Layout,
        state: TrainingState,
        stamp: str,
        gradients: Any,
        seed: int,
        *,
        first: bool,
    ) -> None:
        """Compare the runs, and try one update with ``gradients``, which is undone, and in the
        job's ``first`` step made twice; where it is made on a GPU, another one on the CPU."""
        one, other = self.runs
        repeats = all(same_bits(a, b) for a, b in zip(one, other, strict=True))
        update = trial_update(state, gradients, seed, twice=first)
        self.result = ProbeResult(
            repeats,
            vector_digest(other),
            update,
            layout.digest(),
            stamp,
            update and cpu_trial(state, gradients, seed, update),
        )
        self.runs.clear()

    def named_means(self, means: Mapping[str, mx.array]) -> list[str]:
        """What to say, in sentences, where the state of the first step is the mean of what its
        grains have left, and they have left different things that may be no statistics."""
        left, self.left = self.left, {}
        return [
            f"forward passes change the model's {path}, and a step's grains leave different things "
            "there. The step ends with their mean: that is right for statistics, and wrong for a "
            "queue or a memory of samples. Change such an array in the loop's body (docs/"
            "writing-jobs.md, What a forward pass changes)"
            for path in sorted(means.keys() & left.keys())
            if mx.issubdtype(left[path].dtype, mx.floating)
            and not is_statistic(path)
            and not mx.allclose(left[path], means[path], _ROUNDED, _ROUNDED, equal_nan=True).item()
        ]
