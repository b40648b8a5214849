"""Padded sentences of different lengths: the loss is a mean over tokens and says how many."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

PAD, VOCAB, LONGEST = 0, 18, 10

rng = np.random.default_rng(0)
sentences = [rng.integers(1, VOCAB, rng.integers(3, LONGEST + 1)).tolist() for _ in range(90)]


def collate(batch):
    """Pad to the longest of the batch, up to a multiple of four."""
    longest = -(-max(len(sentence) for sentence in batch) // 4) * 4
    padded = np.full((len(batch), longest), PAD, np.int32)
    for row, sentence in zip(padded, batch, strict=True):
        row[: len(sentence)] = sentence
    return mx.array(padded)


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 10)
        self.rnn = nn.RNN(10, 14)
        self.head = nn.Linear(14, VOCAB)

    def __call__(self, x):
        return self.head(self.rnn(self.embedding(x)))


def loss_fn(model, tokens):
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    mask = targets != PAD
    ce = nn.losses.cross_entropy(model(inputs), targets) * mask
    ntoks = mask.sum()
    return elasticd.Weighted(ce.sum() / ntoks, ntoks)


run = elasticd.Run(
    model=LM(), optimizer=optim.Adam(5e-3), loss=loss_fn, data=sentences, collate=collate
)
for step in run:
    if run.is_main:
        print(f"Iter {step.number}: Train loss {step.loss:.3f}")
