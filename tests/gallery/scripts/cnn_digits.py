"""A small CNN on made-up digits, as in mlx-examples: convolution, pooling, dropout."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(6, 8, kernel_size=3)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc = nn.Linear(8 * 4, 10)
        self.drop = nn.Dropout(0.25)

    def __call__(self, x):
        x = self.pool(mx.maximum(self.conv1(x), 0))
        x = self.pool(mx.maximum(self.conv2(x), 0))
        return self.fc(self.drop(x.flatten(1)))


def make_digits(n):
    rng = np.random.default_rng(0)
    prototypes = rng.random((10, 8, 8, 1))
    labels = rng.integers(0, 10, n)
    images = prototypes[labels] + rng.normal(0, 0.2, (n, 8, 8, 1))
    # Eight by eight, padded by two at two sides.
    return np.pad(images, ((0, 0), (0, 4), (0, 4), (0, 0))).astype(np.float32), labels


def loss_fn(model, X, y):
    return nn.losses.cross_entropy(model(X), y, reduction="mean")


images, labels = make_digits(160)
model = LeNet()
data = list(zip(images, labels.astype(np.uint32), strict=True))
optimizer = optim.SGD(learning_rate=0.05)
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data)
for step in run:
    if run.is_main and step.number % 8 == 0:

        def accuracy():
            return mx.mean(mx.argmax(model(mx.array(images[:64])), axis=1) == mx.array(labels[:64]))

        print(f"step {step.number}: Test accuracy {run.evaluate(accuracy).item():.3f}")
