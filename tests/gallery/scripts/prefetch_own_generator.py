"""A loader in a global, whose thread draws ahead from a generator that it keeps for itself."""

import queue
import random
import threading

import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Loader:
    """Each iteration begins anew with the same numbers, read by a thread ahead of need."""

    def __init__(self, rows, seed, depth=12):
        self.rows, self.seed, self.depth = rows, seed, depth
        self.rng = random.Random(seed)

    def __iter__(self):
        self.rng = rng = random.Random(self.seed)
        waiting = queue.Queue(maxsize=self.depth)

        def read():
            while True:
                row = self.rows[rng.randrange(len(self.rows))]
                waiting.put(row * np.float32(rng.uniform(0.9, 1.1)))

        threading.Thread(target=read, daemon=True).start()
        while True:
            yield waiting.get()


rows = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
loader = Loader(rows, seed=3)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))


def loss_fn(model, x):
    return nn.losses.l1_loss(model(x), x)


run = elasticd.Run(
    model=model, optimizer=optim.RMSprop(2e-3), loss=loss_fn, data=lambda: iter(loader)
)
for step in run:
    print(step.number, step.loss)
