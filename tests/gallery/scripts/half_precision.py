"""bfloat16 weights with norms in float32, as fine-tuning has them."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 12)
        self.layers = [nn.Linear(12, 12) for _ in range(2)]
        self.norm = nn.LayerNorm(12)
        self.head = nn.Linear(12, 16)

    def __call__(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = x + nn.relu(layer(x))
        return self.head(self.norm(x))


model = Net()
model.set_dtype(mx.bfloat16)
model.norm.set_dtype(mx.float32)


def loss_fn(model, tokens):
    logits = model(tokens[:, :-1]).astype(mx.float32)
    return nn.losses.cross_entropy(logits, tokens[:, 1:], reduction="mean")


data = mx.random.randint(0, 16, (64, 8))
run = elasticd.Run(model=model, optimizer=optim.Adam(1e-3), loss=loss_fn, data=data)
for step in run:
    print(step.number, step.loss)
