"""Two optimizers of the script's own, and float32 weights kept beside a bfloat16 model."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_map

import elasticd


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 24), nn.GELU(), nn.Linear(24, 12))
        self.head = nn.Linear(12, 3)

    def __call__(self, x):
        return self.head(nn.gelu(self.body(x)))


def to(dtype, tree):
    return tree_map(lambda array: array.astype(dtype), tree)


net = Net()
net.set_dtype(mx.bfloat16)
x = mx.random.normal((120, 6))
data = list(zip(x, mx.argmax(x @ mx.random.normal((6, 3)), axis=1), strict=True))


def loss_fn(model, x, y):
    return nn.losses.cross_entropy(model(x.astype(mx.bfloat16)).astype(mx.float32), y).mean()


optimizers = {
    "body": optim.Adafactor(learning_rate=1e-2, relative_step=False, scale_parameter=False),
    "head": optim.Lion(learning_rate=1e-3),
}
run = elasticd.Run(model=net, data=data)
run.state.weights = to(mx.float32, net.trainable_parameters())
for part, optimizer in optimizers.items():
    optimizer.init(net[part].trainable_parameters())
    run.track(part, optimizer)

loss_and_grad = nn.value_and_grad(net, loss_fn)
for step in run.steps():
    for x, y in step.micro_batches():
        step.accumulate(*loss_and_grad(net, x, y))
    grads = to(mx.float32, step.grads)
    run.state.weights = {
        part: optimizers[part].apply_gradients(grads[part], run.state.weights[part])
        for part in optimizers
    }
    net.update(to(mx.bfloat16, run.state.weights))
    step.skip()
    if step.number % 8 == 0:
        print(f"{step.number}: {step.loss:.4f}")
