"""A hand-written GPT block, trained in the low-level form inside main().

RMSNorm, rotary positions and SwiGLU as in mlx-lm; the arguments are a dataclass.
"""

from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


@dataclass
class ModelArgs:
    hidden_size: int = 16
    num_attention_heads: int = 2
    intermediate_size: int = 32
    num_hidden_layers: int = 2
    vocab_size: int = 32


class Attention(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        dim, self.n_heads = args.hidden_size, args.num_attention_heads
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, dim, bias=False)
        self.v_proj = nn.Linear(dim, dim, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)
        self.rope = nn.RoPE(dim // self.n_heads)

    def __call__(self, x):
        B, L, D = x.shape

        def heads(y):
            return y.reshape(B, L, self.n_heads, -1).transpose(0, 2, 1, 3)

        q, k, v = heads(self.q_proj(x)), heads(self.k_proj(x)), heads(self.v_proj(x))
        scale = (D // self.n_heads) ** -0.5
        out = mx.fast.scaled_dot_product_attention(
            self.rope(q), self.rope(k), v, scale=scale, mask="causal"
        )
        return self.o_proj(out.transpose(0, 2, 1, 3).reshape(B, L, D))


class Block(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.self_attn = Attention(args)
        self.gate_proj = nn.Linear(args.hidden_size, args.intermediate_size, bias=False)
        self.up_proj = nn.Linear(args.hidden_size, args.intermediate_size, bias=False)
        self.down_proj = nn.Linear(args.intermediate_size, args.hidden_size, bias=False)
        self.input_layernorm = nn.RMSNorm(args.hidden_size)
        self.post_attention_layernorm = nn.RMSNorm(args.hidden_size)

    def __call__(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        h = self.post_attention_layernorm(x)
        return x + self.down_proj(nn.silu(self.gate_proj(h)) * self.up_proj(h))


class Model(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.embed_tokens = nn.Embedding(args.vocab_size, args.hidden_size)
        self.layers = [Block(args) for _ in range(args.num_hidden_layers)]
        self.norm = nn.RMSNorm(args.hidden_size)
        self.lm_head = nn.Linear(args.hidden_size, args.vocab_size, bias=False)

    def __call__(self, inputs):
        h = self.embed_tokens(inputs)
        for layer in self.layers:
            h = layer(h)
        return self.lm_head(self.norm(h))


def loss_fn(model, tokens):
    return nn.losses.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:]).mean()


def main():
    args = ModelArgs()
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, args.vocab_size, (200, 1)) + np.arange(13)[None]
    data = list((tokens % args.vocab_size).astype(np.int32))
    model = Model(args)
    mx.eval(model.parameters())
    optimizer = optim.AdamW(learning_rate=2e-3)
    loss_and_grad = nn.value_and_grad(model, loss_fn)
    run = elasticd.Run(model=model, optimizer=optimizer, data=data)
    for step in run.steps():
        for batch in step.micro_batches():
            loss, grads = loss_and_grad(model, batch)
            step.accumulate(loss, grads)
        step.grads, _ = optim.clip_grad_norm(step.grads, max_norm=1.0)
        step.apply(optimizer)
        if run.is_main and step.number % 10 == 0:
            print(f"Iter {step.number}: Train loss {step.loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
