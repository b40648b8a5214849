"""A module whose temperature is a Python number that the body lowers (Gumbel softmax)."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class Quantiser(nn.Module):
    def __init__(self, dims, codes):
        super().__init__()
        self.encode, self.book = nn.Linear(dims, codes), nn.Linear(codes, dims, bias=False)
        self.temperature = 2.0
        self.anneals = 0

    def __call__(self, x):
        logits = self.encode(x)
        if self.training:
            logits = logits + mx.random.gumbel(logits.shape)
        return self.book(mx.softmax(logits / self.temperature, axis=-1))

    def anneal(self):
        self.temperature = max(0.5, self.temperature * 0.93)
        self.anneals += 1


model = Quantiser(6, 10)
data = mx.random.normal((80, 6))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x)


run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=data)
for step in run:
    model.anneal()
assert model.anneals == 24, model.anneals
