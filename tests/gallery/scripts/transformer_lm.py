"""A decoder-only transformer over characters, as in mlx-examples/transformer_lm.

AdamW behind a warm-up and a cosine, dropout, a causal mask: the script that most people begin with.
"""

import math

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

TEXT = "the quick brown fox jumps over the lazy dog and runs away from the pack of hounds. " * 12
CONTEXT = 16


class TransformerLM(nn.Module):
    def __init__(self, vocab_size: int, num_layers: int, dims: int, num_heads: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, dims)
        self.pe = nn.SinusoidalPositionalEncoding(dims)
        self.transformer = nn.TransformerEncoder(
            num_layers, dims, num_heads, norm_first=True, dropout=0.1
        )
        self.out_proj = nn.Linear(dims, vocab_size)

    def __call__(self, x):
        L = x.shape[1]
        mask = nn.MultiHeadAttention.create_additive_causal_mask(L)
        x = self.embedding(x) + self.pe(mx.arange(L))[None, :, :]
        return self.out_proj(self.transformer(x, mask))


vocabulary = sorted(set(TEXT))
codes = np.array([vocabulary.index(character) for character in TEXT], dtype=np.int32)


class Windows:
    def __len__(self):
        return len(codes) - CONTEXT

    def __getitem__(self, index):
        return codes[index : index + CONTEXT + 1]


def loss_fn(model, batch):
    logits = model(batch[:, :-1])
    return nn.losses.cross_entropy(logits, batch[:, 1:], reduction="mean")


model = TransformerLM(len(vocabulary), num_layers=2, dims=16, num_heads=2)
warmup = optim.linear_schedule(1e-5, 3e-3, steps=5)
cosine = optim.cosine_decay(3e-3, 20)
optimizer = optim.AdamW(optim.join_schedules([warmup, cosine], [5]), weight_decay=0.01)

run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=Windows(), clip_norm=1.0)
for step in run:
    if run.is_main:
        print(f"Iter {step.number}: train loss {step.loss:.3f}, ppl {math.exp(step.loss):.3f}")
