"""A streamed data set of Hugging Face's with a map of its own, shuffled and read ahead."""

# /// gallery
# settings = { "job.env" = { HF_HUB_OFFLINE = "1" } }
# ///

import datasets
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd
from elasticd import data

WIDTH = 12


def cut(row):
    return {"text": row["text"][:WIDTH]}


def tokens(row):
    return np.frombuffer(row["text"].encode().ljust(WIDTH), np.uint8).astype(np.int32)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(256, 8), nn.Linear(8, 256)

    def __call__(self, x):
        return self.head(mx.tanh(self.embedding(x)))


def loss_fn(model, x):
    return nn.losses.cross_entropy(model(x[:, :-1]), x[:, 1:], reduction="mean")


files = [f"rows/part-{number}.jsonl" for number in range(3)]
rows = datasets.load_dataset("json", data_files=files, split="train", streaming=True).map(cut)
stream = data.from_datasets(rows).map(tokens).shuffle(16, seed=5).prefetch(8)
run = elasticd.Run(model=Model(), optimizer=optim.Adam(1e-2), loss=loss_fn, data=stream)
for step in run:
    if run.is_main:
        print(step.number, step.epoch, step.loss)
