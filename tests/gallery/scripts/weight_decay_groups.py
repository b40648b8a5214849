"""Three parameter groups by name: decayed matrices, undecayed norms, a head with its own rate."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.head = nn.Linear(6, 12), nn.LayerNorm(12), nn.Linear(12, 3)

    def __call__(self, x):
        return self.head(mx.tanh(self.norm(self.up(x))))


model = Net()
groups = optim.MultiOptimizer(
    [
        optim.SGD(0.1, momentum=0.9),
        optim.Adam(1e-2),
        optim.AdamW(5e-3, weight_decay=0.1),
    ],
    [lambda path, _: path.startswith("head"), lambda path, w: w.ndim < 2],
)
x = mx.random.normal((90, 6))
y = mx.abs(x[:, ::2])


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


data = list(zip(x, y, strict=True))
run = elasticd.Run(model=model, optimizer=groups, loss=loss_fn, data=data, clip_norm=1.0)
for step in run:
    if step.number == 12:
        groups.optimizers[0].learning_rate = 0.01
