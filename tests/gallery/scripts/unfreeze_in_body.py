"""Fine-tuning thaws one layer after the other in the loop's body, from the head down."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

THAW_EVERY = 6


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(8, 8) for _ in range(3)]
        self.head = nn.Linear(8, 3)

    def __call__(self, x):
        for layer in self.layers:
            x = nn.relu(layer(x))
        return self.head(x)


def loss_fn(model, x, y):
    return nn.losses.cross_entropy(model(x), y).mean()


features = mx.random.normal((72, 8))
labels = mx.argmax(features[:, :3], axis=1)
model = Classifier()
model.freeze()
model.head.unfreeze()
run = elasticd.Run(
    model=model,
    optimizer=optim.AdamW(5e-3),
    loss=loss_fn,
    data=list(zip(features, labels, strict=True)),
)
for step in run:
    if step.number % THAW_EVERY == 0 and step.number // THAW_EVERY <= len(model.layers):
        layer = model.layers[-(step.number // THAW_EVERY)]
        layer.unfreeze()
        print(f"step {step.number}: thawed {layer}")
