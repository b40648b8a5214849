"""Layers are kept in a dict whose keys are digits."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(5, 8)
        self.heads = {str(i): nn.Linear(8, i + 1) for i in range(3)}

    def __call__(self, x):
        x = nn.elu(self.body(x))
        return [self.heads[str(i)](x) for i in range(3)]


def loss_fn(model, x, y):
    outputs = model(x)
    return sum(nn.losses.mse_loss(out, y[:, : out.shape[1]]) for out in outputs) / len(outputs)


x = mx.random.normal((80, 5))
data = list(zip(x, x[:, :3].square(), strict=True))
run = elasticd.Run(model=Heads(), optimizer=optim.Adam(1e-2), loss=loss_fn, data=data)
for step in run:
    print(step.number, step.loss)
