"""The dataset scales a sample where it keeps it, each time that it is asked for it."""

# /// gallery
# expect = "refused"
# words = ["data=", "where it keeps it", "copy"]
# ///

import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Images:
    def __init__(self, count):
        rng = np.random.default_rng(3)
        self.pixels = rng.integers(0, 256, (count, 16)).astype(np.float32)

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        image = self.pixels[index]
        image /= 255
        return image


model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))


def loss_fn(model, x):
    return ((model(x)[:, 0] - x.mean(axis=1)) ** 2).mean()


run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=Images(48))
for step in run:
    pass
