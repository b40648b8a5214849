"""An average of the weights, kept in a tracked tree that the body changes in place."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten

import elasticd

DECAY = 0.9

model = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 5))
data = mx.random.normal((90, 5))


def loss_fn(model, x):
    return nn.losses.huber_loss(model(x), x, reduction="mean")


run = elasticd.Run(model=model, optimizer=optim.Adam(3e-3), loss=loss_fn, data=data)
ema = {name: mx.array(value) for name, value in tree_flatten(model.parameters())}
run.track("ema", ema)
for step in run:
    for name, value in tree_flatten(model.parameters()):
        ema[name] = DECAY * ema[name] + (1 - DECAY) * value
    if step.number == 12:  # what is averaged counts: the model goes on from it
        model.load_weights(list(ema.items()))
