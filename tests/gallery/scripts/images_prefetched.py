"""A dataset of images that threads decode while the model computes."""

import zlib

import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd
from elasticd import data

SIDE = 8


class Images:
    """As files of a folder that are read and decoded one by one."""

    def __init__(self, count):
        pixels = np.random.default_rng(3).integers(0, 255, (count, SIDE, SIDE, 1), np.uint8)
        self.files = [zlib.compress(each.tobytes()) for each in pixels]
        self.labels = pixels.mean((1, 2, 3)) > 127

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        pixels = np.frombuffer(zlib.decompress(self.files[index]), np.uint8)
        image = pixels.reshape(SIDE, SIDE, 1).astype(np.float32) / 255
        return image, np.int32(self.labels[index])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 2)

    def __call__(self, x):
        return self.head(nn.relu(self.conv(x)).mean((1, 2)))


def loss_fn(model, images, labels):
    return nn.losses.cross_entropy(model(images), labels, reduction="mean")


run = elasticd.Run(
    model=Model(),
    optimizer=optim.AdamW(1e-2),
    loss=loss_fn,
    data=data.prefetched(Images(70), items=24, threads=2),
)
for step in run:
    if run.is_main:
        print(step.number, step.epoch, step.loss)
