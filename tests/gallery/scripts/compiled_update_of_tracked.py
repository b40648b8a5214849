"""An update of the script's own in mx.compile, which holds the tracked optimizers' state."""

from functools import partial

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 6))
optimizer = optim.MultiOptimizer(
    [optim.AdamW(learning_rate=optim.cosine_decay(1e-2, 24)), optim.SGD(1e-2, momentum=0.9)],
    [lambda name, _: name.endswith("weight")],
)
optimizer.init(model.trainable_parameters())
state = [model.state, optimizer.state]


@partial(mx.compile, inputs=state, outputs=state)
def update(grads):
    grads, norm = optim.clip_grad_norm(grads, 1.0)
    optimizer.update(model, grads)
    return norm


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), mx.tanh(x))


data = np.random.default_rng(6).normal(size=(96, 6)).astype(np.float32)
run = elasticd.Run(model=model, data=data)
run.track("optimizer", optimizer)
loss_and_grad = nn.value_and_grad(model, loss_fn)
for step in run.steps():
    for batch in step.micro_batches():
        step.accumulate(*loss_and_grad(model, batch))
    norm = update(step.grads)
    mx.eval(norm, state)
    step.skip()
    run.log(norm=norm.item())
