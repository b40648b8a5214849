"""Mixup as image classifiers have it: mx.random mixes each batch with itself inside of the loss."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

CLASSES = 4

images = mx.random.uniform(shape=(96, 8, 8, 1))
labels = mx.random.randint(0, CLASSES, (96,))
data = list(zip(images, labels, strict=True))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, kernel_size=3, padding=1)
        self.head = nn.Linear(6, CLASSES)

    def __call__(self, x):
        return self.head(nn.relu(self.conv(x)).mean(axis=(1, 2)))


def loss_fn(model, x, y):
    share = mx.random.uniform(0.0, 1.0, (len(x), 1))
    share = mx.maximum(share, 1 - share)
    order = mx.random.permutation(len(x))
    targets = mx.eye(CLASSES)[y]
    x = share[:, :, None, None] * x + (1 - share[:, :, None, None]) * x[order]
    targets = share * targets + (1 - share) * targets[order]
    logits = model(x)
    return -(targets * nn.log_softmax(logits, axis=-1)).sum(axis=-1).mean()


run = elasticd.Run(model=Net(), optimizer=optim.Lion(1e-3), loss=loss_fn, data=data, clip_norm=1.0)
for step in run:
    print(f"{step.number}: loss {step.loss:.3f}, epoch {step.epoch}")
