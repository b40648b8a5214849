"""Low-level form: mx.compile, bfloat16 beside float32, a frozen layer, clipping.

The ledger is the gradient of a parameter that adds nothing to the loss and is never changed.
"""

from functools import partial

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from common import CLASSES, HIDDEN, INPUTS, SAMPLES, Ledger, Samples, options  # type: ignore[import-not-found]

import elasticd


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, HIDDEN)
        self.drop = nn.Dropout(0.3)
        self.second = nn.Linear(HIDDEN, HIDDEN)
        self.second.set_dtype(mx.bfloat16)
        self.last = nn.Linear(HIDDEN, CLASSES)
        self.last.freeze()
        self.used = mx.zeros((SAMPLES,))

    def __call__(self, x: mx.array) -> mx.array:
        x = self.drop(mx.maximum(self.first(x), 0.0))
        x = mx.maximum(self.second(x.astype(mx.bfloat16)), 0.0)
        return self.last(x.astype(mx.float32))


def loss(model: Net, batch: dict[str, mx.array]) -> mx.array:
    each = nn.losses.cross_entropy(model(batch["x"]), batch["y"])
    return (each + model.used[batch["index"]]).mean()


model = Net()
optimizer = optim.AdamW(learning_rate=optim.cosine_decay(1e-2, 40))
state = [model.state, mx.random.state]


@partial(mx.compile, inputs=state, outputs=state)
def loss_and_grad(batch: dict[str, mx.array]) -> tuple[mx.array, dict[str, mx.array]]:
    found: tuple[mx.array, dict[str, mx.array]] = nn.value_and_grad(model, loss)(model, batch)
    return found


run = elasticd.Run(model=model, data=Samples(options().pace_seconds))
ledger = Ledger(run)
for step in run.steps():
    for batch in step.micro_batches():
        step.accumulate(*loss_and_grad(batch))
    grads = dict(step.grads)
    used = grads.pop("used")
    grads, _ = optim.clip_grad_norm(grads, 0.5)
    step.grads = {**grads, "used": mx.zeros_like(used)}
    step.apply(optimizer)
    if not step.late:
        ledger.write(step, used)
print("digest", run.digest(), flush=True)
