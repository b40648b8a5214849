"""A frozen feature extractor under a head that is trained."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Probe(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.classifier = nn.Linear(16, 5)

    def __call__(self, x):
        return self.classifier(mx.stop_gradient(self.backbone(x)))


backbone = nn.Sequential(nn.Linear(10, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 16))
backbone.freeze()
backbone.eval()
model = Probe(backbone)

rng = np.random.default_rng(4)
X, y = rng.normal(size=(120, 10)).astype(np.float32), rng.integers(0, 5, 120)


def loss_fn(model, batch):
    logits = model(batch["x"])
    return nn.losses.cross_entropy(logits, batch["y"], label_smoothing=0.1, reduction="mean")


data = [{"x": a, "y": b} for a, b in zip(X, y, strict=True)]
run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=data)
for step in run:
    run.log(loss=step.loss)
