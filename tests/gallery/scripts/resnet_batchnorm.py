"""Residual blocks with BatchNorm, whose running statistics the forward pass changes."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Block(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.conv1 = nn.Conv2d(dims, dims, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm(dims)
        self.conv2 = nn.Conv2d(dims, dims, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm(dims)

    def __call__(self, x):
        out = nn.relu(self.bn1(self.conv1(x)))
        return nn.relu(self.bn2(self.conv2(out)) + x)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm(6)
        self.layers = [Block(6) for _ in range(2)]
        self.linear = nn.Linear(6, 4)

    def __call__(self, x):
        x = nn.relu(self.bn1(self.conv1(x)))
        for layer in self.layers:
            x = layer(x)
        return self.linear(mx.mean(x, axis=[1, 2]))


def train_step(model, inp, tgt):
    return mx.mean(nn.losses.cross_entropy(model(inp), tgt))


rng = np.random.default_rng(9)
data = [
    {"image": rng.random((6, 6, 3)).astype(np.float32), "label": int(rng.integers(4))}
    for _ in range(80)
]
model = ResNet()
optimizer = optim.Adam(learning_rate=1e-3)
train_step_fn = nn.value_and_grad(model, train_step)

run = elasticd.Run(model=model, optimizer=optimizer, data=data)
model.train()
for step in run.steps():
    for batch in step.micro_batches():
        loss, grads = train_step_fn(model, batch["image"], batch["label"])
        step.accumulate(loss, grads)
    step.apply(optimizer)
    if step.number % 6 == 0:
        model.eval()
        mx.eval(model(mx.zeros((1, 6, 6, 3))))
        model.train()
