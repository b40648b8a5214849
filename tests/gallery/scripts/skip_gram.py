"""Word vectors by skip-gram: the loss draws the negative words itself."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

WORDS = "the cat sat on the mat and the dog sat on the cat while the rain fell on the roof".split()
vocabulary = sorted(set(WORDS))
ids = [vocabulary.index(word) for word in WORDS]
pairs = [
    (mx.array(ids[i]), mx.array(ids[j]))
    for i in range(len(ids))
    for j in range(max(0, i - 2), min(len(ids), i + 3))
    if i != j
]


class SkipGram(nn.Module):
    def __init__(self, size, dims):
        super().__init__()
        self.centre = nn.Embedding(size, dims)
        self.context = nn.Embedding(size, dims)

    def __call__(self, words, others):
        return (self.centre(words)[..., None, :] * self.context(others)).sum(-1)


def loss_fn(model, words, near):
    far = mx.random.randint(0, len(vocabulary), (words.shape[0], 5))
    hits, misses = model(words, near[..., None]), model(words, far)
    return -(nn.log_sigmoid(hits).mean() + nn.log_sigmoid(-misses).mean())


run = elasticd.Run(
    model=SkipGram(len(vocabulary), 8), optimizer=optim.Adagrad(0.1), loss=loss_fn, data=pairs
)
for step in run:
    if run.is_main and step.number % 8 == 0:
        print(f"step {step.number}: {step.loss:.4f}")
