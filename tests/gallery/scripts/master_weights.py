"""An optimizer that keeps copies of the weights, of a model that is given others above its loop."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class SlowAndFast(optim.SGD):
    """Lookahead: every fifth step the weights go half of the way back to slow ones."""

    def init_single(self, parameter, state):
        super().init_single(parameter, state)
        state["slow"] = mx.array(parameter)

    def apply_single(self, gradient, parameter, state):
        fast = super().apply_single(gradient, parameter, state)
        meets = self.step % 5 == 0
        state["slow"] = mx.where(meets, 0.5 * (state["slow"] + fast), state["slow"])
        return mx.where(meets, state["slow"], fast)


model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
rows = mx.random.normal((96, 9), key=mx.random.key(11))


def loss_fn(model, row):
    return ((model(row[:, :8])[:, 0] - row[:, 8]) ** 2).mean()


run = elasticd.Run(model=model, optimizer=SlowAndFast(0.05), loss=loss_fn, data=rows)
keys = iter(mx.random.split(mx.random.key(2), 8))
model.update(
    nn.utils.tree_map(lambda p: 0.3 * mx.random.normal(p.shape, key=next(keys)), model.parameters())
)
for step in run:
    if run.is_main:
        print(step.number, step.loss)
