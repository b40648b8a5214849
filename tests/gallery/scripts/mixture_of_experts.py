"""A mixture of experts with a top-2 router and a balance term."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

EXPERTS, TOP = 4, 2


class MoE(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.gate = nn.Linear(dims, EXPERTS, bias=False)
        self.w1 = mx.random.normal((EXPERTS, dims, 2 * dims)) * 0.2
        self.w2 = mx.random.normal((EXPERTS, 2 * dims, dims)) * 0.2

    def __call__(self, x):
        gates = self.gate(x)
        chosen = mx.stop_gradient(mx.argpartition(-gates, kth=TOP - 1, axis=-1)[..., :TOP])
        scores = mx.softmax(mx.take_along_axis(gates, chosen, axis=-1), axis=-1)
        outputs = mx.einsum("bd,edh->beh", x, self.w1)
        outputs = mx.einsum("beh,ehd->bed", nn.relu(outputs), self.w2)
        picked = mx.take_along_axis(outputs, chosen[..., None], axis=1)
        balance = mx.softmax(gates, axis=-1).mean(axis=0).square().sum() * EXPERTS
        return x + (picked * scores[..., None]).sum(axis=1), balance


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [MoE(6) for _ in range(2)]
        self.head = nn.Linear(6, 3)

    def __call__(self, x):
        total = mx.array(0.0)
        for layer in self.layers:
            x, balance = layer(x)
            total = total + balance
        return self.head(x), total


def loss_fn(model, x, y):
    logits, balance = model(x)
    return nn.losses.cross_entropy(logits, y, reduction="mean") + 0.01 * balance


x = mx.random.normal((96, 6))
data = list(zip(x, mx.argmax(x[:, :3], axis=1), strict=True))
run = elasticd.Run(model=Net(), optimizer=optim.AdamW(3e-3), loss=loss_fn, data=data)
for step in run:
    pass
