"""A critic with a gradient penalty: the loss takes a gradient of its own."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

critic = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1))


def loss_fn(critic, real):
    fake = mx.random.uniform(-1, 1, real.shape)
    alpha = mx.random.uniform(shape=(real.shape[0], 1))
    between = alpha * real + (1 - alpha) * fake

    def score(x):
        return critic(x).sum()

    gradient = mx.grad(score)(between)
    penalty = ((mx.linalg.norm(gradient, axis=1) - 1) ** 2).mean()
    return critic(fake).mean() - critic(real).mean() + 10 * penalty


data = np.random.default_rng(2).normal(0.5, 0.2, (96, 2)).astype(np.float32)
optimizer = optim.RMSprop(learning_rate=5e-4)
run = elasticd.Run(model=critic, optimizer=optimizer, loss=loss_fn, data=data)
for step in run:
    if run.is_main:
        print(f"[{step.number}/24] critic {step.loss:.3f}")
