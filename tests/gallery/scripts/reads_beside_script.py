"""Corpus, settings and a module are read from beside the script, by __file__ and by cwd."""

import json
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from tokens import Tokenizer

import elasticd

HERE = Path(__file__).parent
config = json.loads((HERE / "config.json").read_text())
with open("corpus.txt") as file:
    corpus = file.read()

tokenizer = Tokenizer(corpus)
ids = mx.array(tokenizer.encode(corpus))
n = config["context"]


class Bigrams(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(len(tokenizer), config["dims"])
        self.out = nn.Linear(n * config["dims"], len(tokenizer))

    def __call__(self, x):
        return self.out(self.table(x).flatten(1))


def loss_fn(model, batch):
    return nn.losses.cross_entropy(model(batch[:, :-1]), batch[:, -1]).mean()


data = [ids[i : i + n + 1] for i in range(len(ids) - n)]
optimizer = optim.AdamW(learning_rate=config["learning_rate"])
run = elasticd.Run(model=Bigrams(), optimizer=optimizer, loss=loss_fn, data=data)
for step in run:
    if run.is_main:
        print(step.number, step.loss)
