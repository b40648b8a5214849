"""Weights are rounded in the forward pass by a custom function; the body observes their ranges."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


@mx.custom_function
def rounded(w, scale):
    return mx.clip(mx.round(w / scale), -7, 7) * scale


@rounded.vjp
def straight_through(primals, cotangent, _output):
    w, scale = primals
    inside = mx.abs(w) <= 7 * scale
    return cotangent * inside, mx.zeros_like(scale)


class Fake4Bit(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = mx.random.normal((outputs, inputs)) * inputs**-0.5
        self.bias = mx.zeros(outputs)
        self.scale = mx.array(0.1)
        self.enabled = False
        self.freeze(keys=["scale"], recurse=False)

    def observe(self, momentum=0.7):
        now = mx.abs(self.weight).max() / 7
        self.scale = momentum * self.scale + (1 - momentum) * now

    def __call__(self, x):
        w = rounded(self.weight, self.scale) if self.enabled else self.weight
        return x @ w.T + self.bias


data = [(x, int(x.sum().item() > 0)) for x in mx.random.normal((88, 5))]
model = nn.Sequential(Fake4Bit(5, 16), nn.ReLU(), Fake4Bit(16, 2))


def loss_fn(model, x, y):
    return nn.losses.cross_entropy(model(x), y, reduction="mean")


run = elasticd.Run(model=model, optimizer=optim.SGD(0.1, momentum=0.9), loss=loss_fn, data=data)
layers = [layer for layer in model.layers if isinstance(layer, Fake4Bit)]
for step in run:
    for layer in layers:
        layer.observe()
        if step.number == 8:
            layer.enabled = True
    if step.number == 18:
        run.state.final = [layer.scale.item() for layer in layers]
