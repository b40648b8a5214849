"""Images are flipped and cropped by numpy's and Python's global generators when fetched."""

import random

import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Augmented:
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if random.random() < 0.5:
            image = image[:, ::-1]
        padded = np.pad(image, ((1, 1), (1, 1), (0, 0)))
        top, left = np.random.randint(0, 3, size=2)
        image = padded[top : top + 6, left : left + 6]
        return {"image": np.ascontiguousarray(image), "label": self.labels[index]}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(64, 3)

    def __call__(self, x):
        return self.fc(nn.relu(self.conv(x)).flatten(1))


def loss_fn(model, batch):
    return nn.losses.cross_entropy(model(batch["image"]), batch["label"]).mean()


made = np.random.default_rng(0)
data = Augmented(made.random((90, 6, 6, 3)).astype(np.float32), made.integers(0, 3, 90))
run = elasticd.Run(model=Net(), optimizer=optim.Adam(2e-3), loss=loss_fn, data=data)
for step in run:
    if run.is_main:
        print(step.number, step.loss)
