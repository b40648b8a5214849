"""Python values of modules that passes change: a flag of ActNorm, and a count."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class Centred(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.mean, self.ready = mx.zeros((dims,)), False
        self.freeze(keys=["mean"], recurse=False)

    def __call__(self, x):
        if not self.ready:
            self.mean, self.ready = mx.stop_gradient(x.mean(0)), True
        return x - self.mean


class Annealed(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.linear, self.calls = nn.Linear(dims, 1), 0

    def __call__(self, x):
        self.calls += 1
        return self.linear(x) * (1 + 0.1 * min(self.calls, 20))


model = nn.Sequential(Centred(6), Annealed(6))
data = 5 + mx.random.normal((80, 6))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x.sum(-1, keepdims=True) - 30)


run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=data)
for step in run:
    pass
assert model.layers[0].ready and mx.allclose(model.layers[0].mean, mx.array(5.0), atol=1.0)
assert model.layers[1].calls == 24, model.layers[1].calls
