"""A stream behind a thread and a queue, as data pipelines prefetch."""

import queue
import threading

import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


def pipeline():
    rng = np.random.default_rng(7)
    for _ in range(1000):
        x = rng.normal(size=4).astype(np.float32)
        yield x, np.float32(np.sign(x).sum())


def prefetched(depth=16):
    waiting = queue.Queue(maxsize=depth)
    end = object()

    def fill():
        for sample in pipeline():
            waiting.put(sample)
        waiting.put(end)

    threading.Thread(target=fill, daemon=True).start()
    while (sample := waiting.get()) is not end:
        yield sample


model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x).squeeze(-1), y)


run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=prefetched)
for step in run:
    if run.is_main:
        print(step.number, step.loss)
