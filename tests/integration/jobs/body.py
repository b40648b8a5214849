"""High-level form, with a loop's body as people write it: it sets rates, freezes and thaws layers,
follows an average of the weights and goes back to it, counts and draws in ``run.state``, counts
what each rank does for itself, and writes a log.

The ledger is a buffer, as in high.py. What has no place among the parameters is in the log, a line
for each step, so that the log's text tells whether it survived.
"""

import random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from common import CLASSES, HIDDEN, INPUTS, SAMPLES, Ledger, Samples, counts, options  # type: ignore[import-not-found]
from mlx.utils import tree_map

import elasticd

RATE = 1e-2
PATIENCE = 5
LAYERS = ("first", "norm", "second", "last")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, HIDDEN)
        self.norm = nn.BatchNorm(HIDDEN)
        self.drop = nn.Dropout(0.2)
        self.second = nn.Linear(HIDDEN, HIDDEN)
        self.last = nn.Linear(HIDDEN, CLASSES)
        self.used = mx.zeros((SAMPLES,))
        self.freeze(recurse=False, keys=["used"])

    def __call__(self, batch: dict[str, mx.array]) -> mx.array:
        index = batch["index"]
        self.used = self.used + counts(index) / len(index)
        x = self.drop(mx.maximum(self.norm(self.first(batch["x"])), 0.0))
        return self.last(mx.tanh(self.second(x)))


def loss(model: Net, batch: dict[str, mx.array]) -> mx.array:
    return nn.losses.cross_entropy(model(batch), batch["y"]).mean()


model = Net()
optimizer = optim.AdamW(learning_rate=RATE)
run = elasticd.Run(
    model=model, optimizer=optimizer, loss=loss, data=Samples(options().pace_seconds), clip_norm=0.5
)
state = run.state
state.lowest, state.waited, state.drops = float("inf"), 0, 0
state.frozen = []
state.dice = random.Random(3)
ema = elasticd.EMA(model, decay=0.8)
run.track("ema", ema)
own = {"bodies": 0}
run.track("own", own, per_rank=True)
log = run.open("body.csv")
ledger = Ledger(run)
for step in run:
    ledger.write(step, model.used)
    ema.update()
    own["bodies"] += 1 + run.rank
    if step.loss < state.lowest:
        state.lowest, state.waited = step.loss, 0
    else:
        state.waited += 1
    if state.waited == PATIENCE:
        optimizer.learning_rate = optimizer.learning_rate * 0.7
        state.waited, state.drops = 0, state.drops + 1
    if step.number % 40 == 0:
        optimizer.learning_rate = RATE
        state.lowest = float("inf")
    if step.number % 6 == 2:
        state.frozen = state.dice.sample(LAYERS, state.dice.randint(1, 3))
        for name in state.frozen:
            model[name].freeze()
    if step.number % 6 == 5:
        for name in state.frozen:
            model[name].unfreeze()
        state.frozen = []
    if step.number % 30 == 15:
        with ema.applied():
            averaged = tree_map(mx.array, model.last.parameters())
        model.last.update(averaged)
    average = sum(float(each.sum()) for each in ema.state_dict().values())
    figures = step.number, step.loss, optimizer.learning_rate.item(), average
    print(*figures, state.drops, "+".join(state.frozen), sep=",", file=log)
print("digest", run.digest(), flush=True)
