"""Which leaves the sums of a step have.

They are a function of the state and of what the job's first grain was seen to do, which is part of
the state: so a rank that computes nothing in a step, or has only just come, sums what the others
do. The gradients are those of all that is trained when the step begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from elasticd.train.states.state import TrainingState, model_tree
from elasticd.train.states.summed import Shaped, Summed, is_statistic, joined, narrowed
from elasticd.train.states.trees import arrays, dtype_name
from elasticd.train.steps.layout import GRADIENT_DTYPES, Layout, check_sums, has_both


class Leaves:
    """Of one process, step by step."""

    def __init__(self, state: TrainingState) -> None:
        self._state = state
        self._trained: Any = {}
        self._known: tuple[Summed, tuple[str, ...]] | None = None
        self._learnt: Summed | None = None
        """From a grain that was computed here, for states that don't say it yet."""
        self.layout: Layout | None = None
        """Of the step in hand; None while no grain of the job was seen."""

    def look(self) -> None:
        """A step's grains are to be computed: find what is trained."""
        self._trained = model_tree(self._state.model, trainable=True)
        self._state.summed = self._state.summed or self._learnt
        self._find()

    def learn(
        self,
        assigned: Mapping[str, mx.array],
        given: Mapping[str, mx.array],
        metrics: Mapping[str, mx.array],
    ) -> None:
        """Take note of the job's first grain.

        Raises:
            UsageError: it changed what has a gradient too, or a gradient can't be summed.
        """
        for path, gradient in given.items():
            check_sums(path, gradient)
        for path in sorted(assigned.keys() & given.keys()):
            raise has_both(path)
        trained = arrays(self._trained)
        # A module that is in evaluation mode now may train later.
        later = {path for path in self._state.model_slots() if is_statistic(path)} - given.keys()
        beside = [
            Shaped(path, tuple(gradient.shape), dtype_name(gradient))
            for path, gradient in given.items()
            if path not in trained
        ]
        self._learnt = Summed(
            tuple(sorted(assigned.keys() | later)), tuple(beside), tuple(sorted(metrics))
        )
        self._state.summed = self._learnt
        self._find()

    def _find(self) -> None:
        summed = self._state.summed
        if summed is None:
            self._known = self.layout = None
            return
        trained = arrays(self._trained)
        if self._known == (summed, tuple(trained)):
            return
        places = arrays(self._state.model.state)
        kept = {
            path
            for path, array in trained.items()
            if (path not in summed.assigned or is_statistic(path))
            and array.dtype in GRADIENT_DTYPES
        }
        tree = self._trained
        if len(kept) < len(trained):
            tree = narrowed(tree, kept.__contains__)
        tree = joined(tree, summed.tree_beside(model_tree(self._state.model)))
        assigned = {path: places[path] for path in summed.assigned}
        self._known = summed, tuple(trained)
        self.layout = Layout.of(tree, places, assigned, summed.metrics)
