"""A small convolutional network that reads scikit-learn's handwritten digits.

Shows the low-level form, a training loop of the script's own, and a model with state that a forward
pass changes (BatchNorm) and with randomness (dropout).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from shlex import quote

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import numpy.typing as npt

import elasticd

CLASSES = 10
CHANNELS = 16
DROPOUT = 0.2

PEAK_RATE = 0.05
WARMUP_STEPS = 10
DECAY_STEPS = 140

PRINT_EVERY = 10
HELD_OUT_SHARE = 5  # one sample in so many is kept for validation

Sample = tuple[npt.NDArray[np.float32], int]


def load_samples() -> list[Sample]:
    """All 1,797 digits: an image float32[8, 8, 1] in 0..1 and its class."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit(f"digits: needs scikit-learn: {quote(sys.executable)} -m pip install scikit-learn")
    images, classes = load_digits(return_X_y=True)
    images = images.astype(np.float32).reshape(-1, 8, 8, 1) / 16
    return [(image, int(label)) for image, label in zip(images, classes, strict=True)]


def split_samples(samples: list[Sample]) -> tuple[list[Sample], list[Sample]]:
    """``(training, held out)``, by position."""
    held_out = samples[::HELD_OUT_SHARE]
    training = [s for index, s in enumerate(samples) if index % HELD_OUT_SHARE]
    return training, held_out


class DigitNet(nn.Module):
    """Two convolutions with BatchNorm, dropout, one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, CHANNELS, kernel_size=3, padding=1)
        self.first_norm = nn.BatchNorm(CHANNELS)
        self.second = nn.Conv2d(CHANNELS, 2 * CHANNELS, kernel_size=3, stride=2, padding=1)
        self.second_norm = nn.BatchNorm(2 * CHANNELS)
        self.dropout = nn.Dropout(DROPOUT)
        self.head = nn.Linear(4 * 4 * 2 * CHANNELS, CLASSES)

    def __call__(self, images: mx.array) -> mx.array:
        """Images float32[batch, 8, 8, 1] to logits float32[batch, 10]."""
        x = mx.maximum(self.first_norm(self.first(images)), 0.0)
        x = mx.maximum(self.second_norm(self.second(x)), 0.0)
        return self.head(self.dropout(x.reshape(len(images), -1)))


def loss_fn(model: DigitNet, batch: tuple[mx.array, mx.array]) -> mx.array:
    """Mean cross-entropy of (images, classes), in nats."""
    images, classes = batch
    return nn.losses.cross_entropy(model(images), classes, reduction="mean")


def accuracy(model: DigitNet, samples: list[Sample]) -> float:
    """The share of ``samples`` that ``model``, in eval mode, reads rightly."""
    logits = model(mx.array(np.stack([image for image, _ in samples])))
    classes = mx.array([label for _, label in samples])
    return float((mx.argmax(logits, axis=-1) == classes).mean())


def learning_rate() -> Callable[[mx.array], mx.array]:
    """Linear warm-up, then a cosine down to zero, where it stays."""
    warmup = optim.linear_schedule(PEAK_RATE / WARMUP_STEPS, PEAK_RATE, WARMUP_STEPS)
    decay = optim.cosine_decay(PEAK_RATE, DECAY_STEPS)
    return optim.join_schedules([warmup, decay], [WARMUP_STEPS])


def main() -> None:
    training, held_out = split_samples(load_samples())
    model = DigitNet()
    optimizer = optim.SGD(learning_rate=learning_rate(), momentum=0.9)
    run = elasticd.Run(model=model, optimizer=optimizer, data=training)

    loss_and_grad = nn.value_and_grad(model, loss_fn)
    for step in run.steps():
        for batch in step.micro_batches():
            loss, grads = loss_and_grad(model, batch)
            step.accumulate(loss, grads)
        step.apply(optimizer)
        if run.is_main and step.number % PRINT_EVERY == 0:
            print(f"step {step.number}: loss {step.loss:.4f}", flush=True)

    if run.is_main:
        right = run.evaluate(lambda: accuracy(model, held_out))
        run.log(held_out_accuracy=right)
        print(f"held out: {right:.1%} of {len(held_out)} digits read rightly", flush=True)


if __name__ == "__main__":
    main()
