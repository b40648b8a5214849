"""An optimizer that has others by name: one for matrices, another for the rest."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

import elasticd


class ByShape(optim.Optimizer):
    def __init__(self):
        super().__init__()
        self.parts = {"matrices": optim.Adam(1e-2), "rest": optim.SGD(1e-2, momentum=0.9)}

    def init(self, parameters):
        self._initialized = True

    def apply_gradients(self, gradients, parameters):
        new = {}
        gradients, parameters = dict(tree_flatten(gradients)), dict(tree_flatten(parameters))
        for name, part in self.parts.items():
            mine = [n for n in gradients if (gradients[n].ndim == 2) == (name == "matrices")]
            new |= part.apply_gradients(
                {n: gradients[n] for n in mine}, {n: parameters[n] for n in mine}
            )
        return tree_unflatten(list(new.items()))


rows = [np.random.randn(8).astype(np.float32) for _ in range(40)]
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))


def loss_fn(model, x):
    return mx.square(model(x)[:, 0] - x.sum(1)).mean()


run = elasticd.Run(model=model, optimizer=ByShape(), loss=loss_fn, data=rows)
for step in run:
    print(step.number, step.loss)
