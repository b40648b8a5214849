"""A tokenizer built from the data at the start: words by frequency, from a set and a dict."""

import re
from collections import Counter

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

TEXT = """
The cat sat on the mat and the dog sat by the door. A bird sang in the tree, and the cat looked up.
When the bird had gone the cat went to the door; the dog, who had slept, looked at the cat and
barked. So the cat ran up the tree where the bird had sung, and the dog sat by the tree. It rained.
"""
SPECIAL = ["<pad>", "<unk>"]

sentences = [re.findall(r"\w+", line.lower()) for line in re.split(r"[.;,]", TEXT)]
counts = Counter(word for sentence in sentences for word in sentence)
rare = {word for word, count in counts.items() if count == 1}
vocabulary = {word: n for n, word in enumerate([*SPECIAL, *(set(counts) - rare)])}
longest = max(map(len, sentences))


def encode(words):
    ids = [vocabulary.get(word, vocabulary["<unk>"]) for word in words]
    return ids + [vocabulary["<pad>"]] * (longest - len(ids))


def collate(rows):
    tokens = mx.array(rows)
    return tokens[:, :-1], tokens[:, 1:]


class Net(nn.Module):
    def __init__(self, words, dims=12):
        super().__init__()
        self.embed, self.gru = nn.Embedding(words, dims), nn.GRU(dims, dims)

    def __call__(self, x):
        return self.embed.as_linear(self.gru(self.embed(x)))


def loss_fn(model, x, y):
    mask = (y != vocabulary["<pad>"]).astype(mx.float32)
    losses = nn.losses.cross_entropy(model(x), y) * mask
    count = mask.sum()
    return elasticd.Weighted(losses.sum() / mx.maximum(count, 1), count)


run = elasticd.Run(
    model=Net(len(vocabulary)), optimizer=optim.RMSprop(1e-2), loss=loss_fn,
    data=[encode(words) for words in sentences if words], collate=collate,
)  # fmt: skip
for step in run:
    print(f"{step.number}: perplexity {mx.exp(step.loss).item():.2f} of {len(vocabulary)} words")
