"""One np.random.RandomState for all: the split, cut-out in collate, noise in the gradient."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_map

import elasticd

rs = np.random.RandomState(1234)
images = rs.normal(size=(90, 8, 8)).astype(np.float32)
labels = (images.mean((1, 2)) > 0).astype(np.int32)
order = rs.permutation(len(images))
data = [(images[i], int(labels[i])) for i in order]


def cut_out(samples):
    pictures = np.stack([picture.copy() for picture, _ in samples])
    for picture in pictures:
        top, left = rs.randint(0, 5, size=2)
        picture[top : top + 3, left : left + 3] = 0
    return mx.array(pictures), mx.array([label for _, label in samples])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.head = nn.Linear(4, 2)

    def __call__(self, x):
        return self.head(nn.relu(self.conv(x[..., None])).mean((1, 2)))


def loss_fn(model, x, y):
    if rs.rand() < 0.5:
        x = x[:, :, ::-1]
    return nn.losses.cross_entropy(model(x), y, reduction="mean")


model, optimizer = Net(), optim.AdamW(3e-3)
loss_and_grad = nn.value_and_grad(model, loss_fn)
run = elasticd.Run(model=model, optimizer=optimizer, data=data, collate=cut_out)
for step in run.steps():
    for x, y in step.micro_batches():
        step.accumulate(*loss_and_grad(model, x, y))
    step.grads = tree_map(lambda g: g + 1e-3 * rs.randn(*g.shape).astype(np.float32), step.grads)
    step.apply(optimizer)
