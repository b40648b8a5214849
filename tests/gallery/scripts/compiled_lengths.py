"""A compiled loss reads run.state and a tracked dict, and batches come in several lengths."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

rng = np.random.default_rng(3)
data = [rng.normal(size=rng.integers(2, 16)).astype(np.float32) for _ in range(100)]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(1, 8), nn.Linear(8, 1)

    def __call__(self, x):
        return self.last(nn.relu(self.first(x[..., None])).mean(1))[:, 0]


def padded(samples):
    length = -(-max(map(len, samples)) // 4) * 4
    return mx.array(np.stack([np.pad(sample, (0, length - len(sample))) for sample in samples]))


def loss_fn(model, x):
    decay = run.state.beta * model.first.weight.square().sum()
    return (model(x) - x.sum(1)).square().mean() * weights["loss"] + decay


run = elasticd.Run(
    model=Model(),
    optimizer=optim.Adam(1e-2),
    loss=loss_fn,
    data=data,
    collate=padded,
    compile=True,
)
run.state.beta = 0.0
weights = {"loss": 1.0}
run.track("weights", weights)
for step in run:
    run.state.beta = min(1.0, step.number / 50)
    weights["loss"] *= 0.98
