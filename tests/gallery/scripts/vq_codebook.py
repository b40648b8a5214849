"""A VQ autoencoder: straight-through gradients, and a codebook that the body moves and mends."""

import random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

CODES, WIDTH = 12, 3
dice = random.Random(17)


class Quantised(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 12), nn.SiLU(), nn.Linear(12, WIDTH))
        self.decoder = nn.Sequential(nn.Linear(WIDTH, 12), nn.SiLU(), nn.Linear(12, 6))
        self.codes = mx.random.normal((CODES, WIDTH))
        self.freeze(keys=["codes"], recurse=False)

    def nearest(self, z):
        distances = (z[:, None] - self.codes[None]).square().sum(-1)
        return distances.argmin(-1)

    def __call__(self, x):
        z = self.encoder(x)
        q = self.codes[self.nearest(z)]
        return self.decoder(z + mx.stop_gradient(q - z)), z, q


def loss_fn(model, x):
    y, z, q = model(x)
    return (y - x).square().mean() + 0.25 * (z - mx.stop_gradient(q)).square().mean()


class Codebook:
    """Running means of what each code stands for."""

    def __init__(self, model, decay=0.8):
        self.model, self.decay = model, decay
        self.count, self.total = mx.ones(CODES), model.codes + 0

    def update(self, z):
        hot = (self.model.nearest(z)[:, None] == mx.arange(CODES)[None]).astype(mx.float32)
        self.count = self.decay * self.count + (1 - self.decay) * hot.sum(0)
        self.total = self.decay * self.total + (1 - self.decay) * (hot.T @ z)
        codes = self.total / mx.maximum(self.count, 1e-3)[:, None]
        for unused in [i for i, n in enumerate(self.count.tolist()) if n < 0.2]:
            codes[unused] = z[dice.randrange(len(z))]
            self.count[unused], self.total[unused] = 1.0, codes[unused]
        self.model.codes = codes

    def state_dict(self):
        return {"count": self.count, "total": self.total}

    def load_state_dict(self, saved):
        self.count, self.total = saved["count"], saved["total"]


data = mx.random.normal((80, 6)) * mx.array([2.0, 1, 1, 0.5, 0.5, 0.1])
model = Quantised()
run = elasticd.Run(model=model, optimizer=optim.AdamW(4e-3), loss=loss_fn, data=data)
codebook = Codebook(model)
run.track("codebook", codebook)
for step in run:
    at = step.number * 16 % len(data)
    codebook.update(model.encoder(data[at : at + 16]))
    if run.is_main:
        print(step.number, step.loss)
