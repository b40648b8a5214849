"""Layer-wise decay of the learning rate: an optimizer for each layer, joined by MultiOptimizer."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

DEPTH, DECAY = 4, 0.7


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(7, 16)
        self.layers = [nn.Linear(16, 16) for _ in range(DEPTH)]
        self.head = nn.Linear(16, 2)

    def __call__(self, x):
        x = nn.relu(self.stem(x))
        for layer in self.layers:
            x = x + nn.relu(layer(x))
        return self.head(x)


def in_layer(number):
    return lambda path, _: path.startswith(f"layers.{number}.")


def rate(distance):
    peak = 1e-2 * DECAY**distance
    warmup = optim.linear_schedule(0.0, peak, 5)
    return optim.join_schedules([warmup, optim.cosine_decay(peak, 19)], [5])


x = mx.random.normal((88, 7))
data = list(zip(x, mx.stack([x.max(axis=1), x.min(axis=1)], axis=1), strict=True))
optimizer = optim.MultiOptimizer(
    [
        *(optim.AdamW(rate(DEPTH - number), weight_decay=0.02) for number in range(DEPTH)),
        optim.AdamW(rate(DEPTH + 1)),
        optim.SGD(rate(0), momentum=0.9),
    ],
    [*map(in_layer, range(DEPTH)), lambda path, _: path.startswith("stem")],
)


def loss_fn(model, x, y):
    return nn.losses.smooth_l1_loss(model(x), y)


run = elasticd.Run(model=Net(), optimizer=optimizer, loss=loss_fn, data=data, clip_norm=1.0)
for step in run:
    rates = [each.learning_rate.item() for each in optimizer.optimizers]
    print(step.number, f"{step.loss:.4f}", " ".join(f"{each:.1e}" for each in rates))
