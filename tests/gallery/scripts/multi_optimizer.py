"""Muon for matrices, AdamW without decay for the rest, through MultiOptimizer."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(15, 8)
        self.layers = [nn.Linear(8, 8, bias=False) for _ in range(2)]
        self.norms = [nn.LayerNorm(8) for _ in range(2)]

    def __call__(self, x):
        x = self.embed(x)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + nn.silu(layer(norm(x)))
        return self.embed.as_linear(x)


def is_matrix(path, weight):
    return weight.ndim == 2 and "embed" not in path


def loss_fn(model, x, y):
    return nn.losses.cross_entropy(model(x), y).mean()


tokens = mx.random.randint(0, 15, (60, 6))
data = [(row, (row + 1) % 15) for row in tokens]
optimizer = optim.MultiOptimizer(
    [optim.Muon(learning_rate=optim.linear_schedule(0.0, 0.02, 6)), optim.AdamW(1e-3)],
    [is_matrix],
)
run = elasticd.Run(model=Net(), optimizer=optimizer, loss=loss_fn, data=data)
for step in run:
    print(step.number, step.loss)
