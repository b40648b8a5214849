"""Noise that is drawn once, between Run and the loop, and fed to the loss in every step."""

import random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


def loss_fn(model, x):
    return mx.mean(mx.square(model(x + fixed_noise) * scale - x)) + shift


data = np.random.default_rng(2).normal(size=(96, 6)).astype(np.float32)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 6))
run = elasticd.Run(model=model, optimizer=optim.Adam(2e-3), loss=loss_fn, data=data)
fixed_noise = 0.1 * mx.random.normal((6,))
scale = float(np.random.uniform(0.8, 1.2))
shift = mx.array(random.random())
for step in run:
    if run.is_main and step.number % 8 == 0:
        print(f"step {step.number}: loss {step.loss:.4f}")
