"""A multi-layer perceptron with dropout, whose size comes from the command line."""

# /// gallery
# settings = { "job.args" = ["--num-layers", "3", "--hidden-dim", "20"] }
# ///

import argparse

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class MLP(nn.Module):
    def __init__(self, num_layers, input_dim, hidden_dim, output_dim):
        super().__init__()
        sizes = [input_dim] + [hidden_dim] * num_layers + [output_dim]
        self.layers = [nn.Linear(i, o) for i, o in zip(sizes[:-1], sizes[1:], strict=True)]
        self.dropout = nn.Dropout(0.5)

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = self.dropout(nn.relu(layer(x)))
        return self.layers[-1](x)


def loss_fn(model, X, y):
    return nn.losses.cross_entropy(model(X), y, reduction="mean")


def main(args):
    images = mx.random.normal((100, 12))
    labels = mx.argmax(images[:, :4], axis=1)
    model = MLP(args.num_layers, 12, args.hidden_dim, 4)
    mx.eval(model.parameters())
    run = elasticd.Run(
        model=model,
        optimizer=optim.SGD(learning_rate=args.lr),
        loss=loss_fn,
        data=list(zip(images, labels, strict=True)),
    )
    for step in run:
        if run.is_main and step.number % args.report == 0:
            print(f"Step {step.number}: Train {step.loss:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser("Train a simple MLP with MLX.")
    parser.add_argument("--num-layers", type=int, default=2)
    parser.add_argument("--hidden-dim", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-1)
    parser.add_argument("--report", type=int, default=5)
    main(parser.parse_args())
