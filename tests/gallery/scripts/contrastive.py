"""CLIP's loss: every other pair of a micro-batch is a negative."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Linear(10, 8)
        self.text = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8))
        self.logit_scale = mx.array(1.0)

    def __call__(self, images, texts):
        images, texts = self.image(images), self.text(texts)
        images = images / mx.linalg.norm(images, axis=-1, keepdims=True)
        texts = texts / mx.linalg.norm(texts, axis=-1, keepdims=True)
        return mx.exp(self.logit_scale) * (images @ texts.T)


def loss_fn(model, images, texts):
    logits = model(images, texts)
    labels = mx.arange(len(images))
    rows = nn.losses.cross_entropy(logits, labels, reduction="mean")
    return (rows + nn.losses.cross_entropy(logits.T, labels, reduction="mean")) / 2


rng = np.random.default_rng(4)
hidden = rng.normal(size=(100, 4))
images = (hidden @ rng.normal(size=(4, 10))).astype(np.float32)
texts = (hidden @ rng.normal(size=(4, 6))).astype(np.float32)
data = list(zip(images, texts, strict=True))
run = elasticd.Run(model=Clip(), optimizer=optim.Adam(5e-3), loss=loss_fn, data=data)
for step in run:
    pass
