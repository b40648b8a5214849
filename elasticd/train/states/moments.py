"""What an optimizer keeps of each parameter. It comes as a parameter is trained for the first time,
which may be in any step: so a state from elsewhere may have more of it, or less."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import is_
from typing import Any

import mlx.optimizers as optim
from mlx.utils import tree_flatten

from elasticd.train.states.containers import Shape, drop, remember
from elasticd.train.states.summed import narrowed, pruned
from elasticd.train.states.trees import arrays


class Moments:
    """Of one optimizer and the module that it trains."""

    def __init__(self, optimizer: optim.Optimizer, model: Any) -> None:
        self._optimizer = optimizer
        self._model = model
        trained: dict[str, Any] = self._model.trainable_parameters()
        self._unmade: Callable[[], None] | None = remember(optimizer.state)
        """Takes away what follows; known no longer than that may be needed."""
        self._untouched: tuple[dict[str, Any], list[Any]] | None = None
        """The parameters, and what was made of them, as long as the script may change either."""
        optimizer.init(trained)
        self.shape = Shape(optimizer, arrays(model.parameters()))
        self._first_leaves = frozenset(self.shape.leaves(optimizer.state))
        self._first = frozenset(arrays(trained))
        self.begun = self._first
        """The parameters of which there is something."""

    def may_renew(self, may: bool) -> None:
        """Whether the model may be given other weights before anything is computed with it."""
        self._untouched = self._look() if may else None
        if not may:
            self._unmade = None

    def _look(self) -> tuple[dict[str, Any], list[Any]]:
        leaves = self.shape.leaves(self._optimizer.state)
        return arrays(self._model.parameters()), [slot.value for slot in leaves.values()]

    def renew(self) -> bool:
        """Make all of it anew where the model has other weights than those of which it was made,
        and the script has left it as it was; whether that was done. An optimizer that keeps a copy
        of the weights would put the old ones back."""
        before, self._untouched = self._untouched, None
        if before is None or self._unmade is None:
            return False
        parameters, leaves = self._look()
        others = any(before[0].get(path, array) is not array for path, array in parameters.items())
        same = len(leaves) == len(before[1]) and all(map(is_, leaves, before[1]))
        if not others or not same:
            return False
        self._unmade()
        self._optimizer.init(narrowed(self._model.parameters(), self._first.__contains__))
        return True

    def restart(self) -> None:
        """The optimizer's state is that of the beginning."""
        self.begun = self._first

    def begin(self, gradients: Any) -> Any:
        """Make what an update with ``gradients`` needs and isn't there yet, and return those that
        the optimizer can take."""
        flat: list[tuple[str, Any]] = list(tree_flatten(gradients))  # type: ignore[arg-type]
        if new := {path for path, _ in flat} - self.begun:
            self._make(self.begun | new)
        return pruned(gradients, self._optimizer.state)

    def _make(self, paths: frozenset[str]) -> None:
        self._optimizer.init(narrowed(self._model.parameters(), paths.__contains__))
        self.shape.made(paths - self.begun)
        self.begun = paths

    def fit(self, saved: Iterable[str]) -> None:
        """Keep something of just those parameters of which a saved state, with these leaves, has
        something: what lacks is made, what is too much goes."""
        wanted = {parameter for path in saved if (parameter := self.shape.of(path))}
        if wanted - self.begun:
            self._make(self.begun | wanted)
        # From the end on: those of a list move up.
        for path, slot in reversed(self.shape.leaves(self._optimizer.state).items()):
            of = self.shape.of(path)
            if of and of not in wanted and path not in self._first_leaves:
                drop(slot)
        self.begun = self._first | wanted
