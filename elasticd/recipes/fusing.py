"""MLX's optimizers, with the update of all arrays as one compiled function, as mlx-lm has it.

By itself an update is a dozen small operations for each array. The bits are those of the compiled
function wherever MLX compiles, which is part of what all nodes must have alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim
from mlx.utils import tree_map


def fused(kind: type[optim.Optimizer]) -> Any:
    """A class of the same name whose updates are compiled. It keeps nothing else: whatever it kept
    would be part of the job's state."""
    compiled: list[tuple[Any, Callable[..., Any]]] = []
    """For the state of the newest of them: what takes gradients and parameters."""

    def apply_gradients(self: Any, gradients: Any, parameters: Any) -> Any:
        if not self._initialized:
            self.init(gradients)
        if not compiled or compiled[0][0] is not self.state:
            plain = super(made, self).apply_gradients
            compiled[:] = [(self.state, mx.compile(plain, inputs=self.state, outputs=self.state))]
        trained = tree_map(lambda _, parameter: parameter, gradients, parameters)
        return compiled[0][1](gradients, trained)

    made: Any = type(kind.__name__, (kind,), {"apply_gradients": apply_gradients})
    return made
