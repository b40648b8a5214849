"""The loop's body sets the learning rate of the next step from step.number, by a formula."""

import math

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

TOTAL, WARMUP, PEAK = 24, 6, 8e-3


def rate_of(step):
    if step < WARMUP:
        return PEAK * (step + 1) / WARMUP
    return PEAK * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (TOTAL - WARMUP)))


inputs = mx.random.normal((110, 7))
model = nn.Sequential(nn.Linear(7, 4), nn.Tanh(), nn.Linear(4, 7))


def reconstruction(model, x):
    return nn.losses.mse_loss(model(x), x)


optimizer = optim.AdamW(learning_rate=rate_of(0))
run = elasticd.Run(model=model, optimizer=optimizer, loss=reconstruction, data=inputs)
for step in run:
    optimizer.learning_rate = rate_of(step.number)
