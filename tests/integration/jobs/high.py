"""High-level form: dropout, BatchNorm, AdamW with a schedule, clipping.

The ledger is a buffer that the forward pass adds to, like BatchNorm's: what it holds after a step
is how often each sample was used in all steps so far.
"""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from common import CLASSES, HIDDEN, INPUTS, SAMPLES, Ledger, Samples, counts, options  # type: ignore[import-not-found]

import elasticd


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, HIDDEN)
        self.norm = nn.BatchNorm(HIDDEN)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(HIDDEN, CLASSES)
        self.used = mx.zeros((SAMPLES,))
        self.freeze(recurse=False, keys=["used"])

    def __call__(self, batch: dict[str, mx.array]) -> mx.array:
        index = batch["index"]
        self.used = self.used + counts(index) / len(index)
        return self.last(self.drop(mx.maximum(self.norm(self.first(batch["x"])), 0.0)))


def loss(model: Net, batch: dict[str, mx.array]) -> mx.array:
    return nn.losses.cross_entropy(model(batch), batch["y"]).mean()


model = Net()
run = elasticd.Run(
    model=model,
    optimizer=optim.AdamW(learning_rate=optim.cosine_decay(1e-2, 40)),
    loss=loss,
    data=Samples(options().pace_seconds),
    clip_norm=0.5,
)
ledger = Ledger(run)
for step in run:
    ledger.write(step, model.used)
print("digest", run.digest(), flush=True)
