"""A character LSTM with truncated sequences and a fresh hidden state for each batch."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

text = "she sells sea shells by the sea shore and the shells she sells are sea shells " * 6
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
ids = mx.array([stoi[c] for c in text])
SEQ = 12


class CharLSTM(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embed = nn.Embedding(vocab, 12)
        self.lstm = nn.LSTM(12, hidden)
        self.head = nn.Linear(hidden, vocab)

    def __call__(self, x):
        hidden, _ = self.lstm(self.embed(x))
        return self.head(hidden)


def loss_fn(model, x, y):
    return nn.losses.cross_entropy(model(x), y).mean()


starts = range(0, len(text) - SEQ - 1, 3)
dataset = [(ids[i : i + SEQ], ids[i + 1 : i + SEQ + 1]) for i in starts]
model = CharLSTM(len(chars), 24)
run = elasticd.Run(
    model=model, optimizer=optim.Adam(5e-3), loss=loss_fn, data=dataset, clip_norm=5.0
)
for step in run:
    if run.is_main and step.number % 5 == 0:
        print(f"step {step.number} loss {step.loss:.4f}")
