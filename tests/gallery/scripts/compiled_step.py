"""mx.compile around loss and gradient, with the model's and the random state as inputs."""

from functools import partial

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(8, 16), nn.Linear(16, 8)]
        self.norm = nn.LayerNorm(16)
        self.dropout = nn.Dropout(0.2)

    def __call__(self, x):
        return self.layers[1](self.dropout(self.norm(nn.relu(self.layers[0](x)))))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x)


model = Model()
optimizer = optim.AdamW(learning_rate=1e-3)
state = [model.state, mx.random.state]


@partial(mx.compile, inputs=state, outputs=state)
def gradient_step(x):
    return nn.value_and_grad(model, loss_fn)(model, x)


data = np.random.default_rng(8).normal(size=(100, 8)).astype(np.float32)
run = elasticd.Run(model=model, optimizer=optimizer, data=data)
for step in run.steps():
    for batch in step.micro_batches():
        loss, grads = gradient_step(batch)
        step.accumulate(loss, grads)
    step.apply(optimizer)
