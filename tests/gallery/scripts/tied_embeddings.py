"""One array is embedding and output; one layer is used twice."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(20, 10)
        shared = nn.Linear(10, 10)
        self.first, self.second = shared, shared
        self.norm = nn.RMSNorm(10)

    def __call__(self, x):
        x = self.wte(x)
        x = x + nn.relu2(self.first(x))
        x = x + nn.relu2(self.second(x))
        return self.wte.as_linear(self.norm(x))


def loss_fn(model, tokens):
    return nn.losses.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:], reduction="mean")


data = mx.random.randint(0, 20, (70, 9))
run = elasticd.Run(model=Tied(), optimizer=optim.AdamW(3e-3), loss=loss_fn, data=data)
for step in run:
    pass
