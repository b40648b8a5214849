"""An average of the weights that each step binds anew: what is tracked is the first tree."""

# /// gallery
# expect = "named"
# words = ["ema"]
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_map

import elasticd

model = nn.Linear(4, 4)
data = mx.random.normal((64, 4))


def loss_fn(model, x):
    return (model(x) - x).abs().mean()


run = elasticd.Run(model=model, optimizer=optim.SGD(0.05), loss=loss_fn, data=data)
ema = tree_map(mx.array, model.parameters())
run.track("ema", ema)
for step in run:
    ema = tree_map(lambda e, p: 0.8 * e + 0.2 * p, ema, model.parameters())
    if step.number == 20:
        model.update(ema)
