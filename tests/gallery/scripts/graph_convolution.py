"""A graph network: the whole graph is a constant of the loss, the samples are its nodes."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

NODES = 48
features = mx.random.normal((NODES, 5))
edges = (mx.random.uniform(shape=(NODES, NODES)) < 0.1).astype(mx.float32)
edges = mx.maximum(mx.maximum(edges, edges.T), mx.eye(NODES))
scale = mx.rsqrt(edges.sum(axis=1))
adjacency = scale[:, None] * edges * scale[None, :]
labels = (adjacency @ features).argmax(axis=1)


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 16, bias=False)
        self.second = nn.Linear(16, 5, bias=False)
        self.dropout = nn.Dropout(0.2)

    def __call__(self, x):
        hidden = nn.relu(adjacency @ self.first(x))
        return adjacency @ self.second(self.dropout(hidden))


def loss_fn(model, nodes):
    logits = model(features)[nodes]
    return nn.losses.cross_entropy(logits, labels[nodes], reduction="mean")


run = elasticd.Run(
    model=GCN(), optimizer=optim.Adam(0.01), loss=loss_fn, data=mx.arange(NODES), clip_norm=1.0
)
for step in run:
    if run.is_main:
        print(f"epoch {step.epoch}, step {step.number}: {step.loss:.4f}")
