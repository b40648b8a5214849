"""Centers are moved where they lie (`centers[k] += …`), and kept as they were by another name."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

CENTERS = 4

data = mx.random.normal((96, 6))


class Clustered(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(6, 3)
        self.centers = mx.random.normal((CENTERS, 3))
        self.freeze(keys=["centers"], recurse=False)

    def __call__(self, x):
        return self.encode(x)


def loss_fn(model, x):
    codes = model(x)
    apart = mx.square(codes[:, None] - model.centers[None]).sum(-1).min(axis=1).mean()
    moved = mx.square(model.centers - run.state.previous).sum()
    return apart + 0.1 * (1 + moved) * mx.square(codes).mean()


model = Clustered()
run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=data)
run.state.previous = model.centers
for step in run:
    if step.number % 2 == 0:
        run.state.previous = model.centers
    model.centers[step.number % CENTERS] += 0.1 * (step.loss + model.encode.bias)
