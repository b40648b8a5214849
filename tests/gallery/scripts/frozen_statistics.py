"""BatchNorm whose statistics stay as they are at first, and follow the data from the middle on."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = nn.Linear(8, 16)
        self.bn = nn.BatchNorm(16)
        self.linear2 = nn.Linear(16, 1)

    def __call__(self, x):
        return self.linear2(nn.relu(self.bn(self.linear1(x))))


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


inputs = mx.random.normal((100, 8))
targets = mx.sin(inputs).sum(-1, keepdims=True)
model = Net()
model.bn.eval()
run = elasticd.Run(
    model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=list(zip(inputs, targets))
)
for step in run:
    if step.number == 8:
        model.bn.train()
