"""One seed for all: children of a generator, and of a SeedSequence, are spawned in the body."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

seeds = np.random.SeedSequence(2024)
rng = np.random.default_rng(seeds.spawn(1)[0])
for_weights, for_rates = rng.spawn(2)
model = nn.Linear(4, 4)
data = mx.random.normal((64, 4))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x + 1)


optimizer = optim.SGD(0.05)
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data)
run.state.rng = np.random.default_rng(5)
for step in run:
    (child,) = for_weights.spawn(1)
    noise = child.normal(scale=0.01, size=model.weight.shape)
    model.weight = model.weight + mx.array(noise.astype(np.float32))
    fresh = np.random.default_rng(seeds.spawn(1)[0])
    kept = run.state.rng.spawn(1)[0]
    optimizer.learning_rate = 0.05 * (for_rates.random() + fresh.random() + kept.random())
