"""A sparse autoencoder whose dead features are made anew in the body, moments included."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

WIDTH, FEATURES = 8, 24


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(WIDTH, FEATURES)
        self.decoder = nn.Linear(FEATURES, WIDTH)

    def features(self, x):
        return nn.relu(self.encoder(x - self.decoder.bias))

    def __call__(self, x):
        return self.decoder(self.features(x))


def loss_fn(model, x):
    z = model.features(x)
    wrong = (model.decoder(z) - x).square().sum(-1).mean()
    fired = (z > 0).mean(0)
    return elasticd.Weighted(
        wrong + 0.05 * z.sum(-1).mean(), len(x), metrics={"alive": (fired > 0).mean()}
    )


def resample(model, optimizer, dead, rng):
    """New directions for features that fire for nothing, and no memory of their old ones."""
    rows = rng.normal(size=(int(dead.sum()), WIDTH)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    places = mx.array(np.flatnonzero(dead))
    model.encoder.weight[places] = mx.array(rows) * 0.5
    model.encoder.bias[places] = 0.0
    model.decoder.weight[:, places] = mx.array(rows).T
    for name in ("m", "v"):
        optimizer.state["encoder"]["weight"][name][places] = 0.0


rng = np.random.default_rng(4)
data = (rng.normal(size=(96, 3)) @ rng.normal(size=(3, WIDTH))).astype(np.float32)
model, optimizer = Autoencoder(), optim.Adam(1e-2)
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data)
probe = mx.array(data[:32])
run.state.resampled = 0
for step in run:
    if step.number % 7 == 0:
        dead = np.array((model.features(probe) > 0).sum(0) < 4)
        if dead.any():
            resample(model, optimizer, dead, rng)
            run.state.resampled += int(dead.sum())
    run.log(alive=step.metrics["alive"], resampled=run.state.resampled)
