"""A triplet loss over three-part samples, whose arguments the loss takes one by one."""

import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

rng = np.random.default_rng(6)
centers = rng.normal(size=(5, 6)) * 3


def near(label):
    return (centers[label] + rng.normal(size=6)).astype(np.float32)


triplets = []
for i in range(90):
    label, other = i % 5, (i + 1 + i // 5 % 4) % 5
    triplets.append((near(label), near(label), near(other)))

model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))


def loss_fn(model, anchors, positives, negatives):
    return nn.losses.triplet_loss(
        model(anchors), model(positives), model(negatives), margin=0.5, reduction="mean"
    )


run = elasticd.Run(model=model, optimizer=optim.Adam(3e-3), loss=loss_fn, data=triplets)
for step in run:
    if run.is_main:
        print(f"Step {step.number} triplet loss {step.loss:.4f}")
