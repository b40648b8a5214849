"""A vocabulary is numbered in the order of a set of strings, which a hash seed decides."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

text = (
    """how much wood would a woodchuck chuck if a woodchuck could chuck wood
he would chuck he would as much as he could and chuck as much wood as a woodchuck would"""
    * 2
)
words = text.split()
word_to_index = {word: i for i, word in enumerate(set(words))}
codes = mx.array([word_to_index[word] for word in words])


class SkipGram(nn.Module):
    def __init__(self, size, dims):
        super().__init__()
        self.embedding, self.context = nn.Embedding(size, dims), nn.Embedding(size, dims)

    def __call__(self, x):
        return self.context.as_linear(self.embedding(x))


def loss_fn(model, center, neighbour):
    return nn.losses.cross_entropy(model(center), neighbour, reduction="mean")


pairs = [(codes[i], codes[i + 1]) for i in range(len(words) - 1)]
model = SkipGram(len(word_to_index), 8)
run = elasticd.Run(model=model, optimizer=optim.Adagrad(0.1), loss=loss_fn, data=pairs)
for step in run:
    pass
print({word: i for word, i in list(word_to_index.items())[:3]})
