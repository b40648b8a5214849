"""``[recipe] kind = "dpo"``: of two answers the model learns to prefer the chosen one.

Rows have a prompt, a chosen and a rejected answer. How much likelier the model finds one than the
model that training began with does is what is compared (arXiv:2305.18290). That one shares all
weights that are not trained.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from elasticd.recipes.models import load, prepare
from elasticd.recipes.rows import (
    Process,
    Rows,
    Sample,
    keys_of,
    messages_of,
    read,
    text_of,
    tokens_of,
    tools_of,
    width,
)
from elasticd.settings.recipe import Dpo
from elasticd.settings.rules import show
from elasticd.train import Weighted


def read_pairs(path: Path, tokenizer: Any, config: Dpo, key: str = "") -> Rows:
    """Of each row two, chosen and rejected: of texts as mlx-lm has completions, of lists of
    messages as it has chats. An answer is one message of the assistant's, so that no other is
    trained; before it the prompt may be repeated. ``key``: as for :func:`read`.

    Raises:
        UsageError: naming file and line.
    """
    prompt, answers = config.prompt_feature, (config.chosen_feature, config.rejected_feature)

    def choose(first: dict[str, Any]) -> Sequence[Process]:
        if missing := [name for name in (prompt, *answers) if name not in first]:
            raise ValueError(
                f"a row of preferences has {prompt}, {answers[0]} and {answers[1]};"
                f" {keys_of(first)}, and no {missing[0]}. If yours are called otherwise, say so:"
                " prompt_feature, chosen_feature and rejected_feature"
            )
        chats = isinstance(first[answers[0]], list)
        make_row = _chat if chats else _text
        example: dict[str, Any] = {"messages": []} if chats else {"prompt": "", "completion": ""}
        make = tokens_of(example, tokenizer, _WANTED, config.model)

        def making(answer: str) -> Process:
            return lambda row: make(make_row(row, prompt, answer))

        return [making(answer) for answer in answers]

    return read(path, config.max_seq_length, choose, key)


_WANTED = {
    "mask_prompt": True,
    "prompt_feature": "prompt",
    "completion_feature": "completion",
    "chat_feature": "messages",
    "text_feature": "text",
}


def _text(row: dict[str, Any], prompt: str, answer: str) -> dict[str, Any]:
    return {"prompt": text_of(row, prompt), "completion": text_of(row, answer), **tools_of(row)}


def _chat(row: dict[str, Any], prompt: str, answer: str) -> dict[str, Any]:
    if isinstance(row.get(prompt), list):
        begin = messages_of(row, prompt)
    else:
        begin = [{"role": "user", "content": text_of(row, prompt)}]
    said = messages_of(row, answer)
    if _alike(begin, said[: len(begin)]):
        said = said[len(begin) :]
    if [message["role"] for message in said] != ["assistant"]:
        roles = ", ".join(message["role"] for message in said) or "none"
        raise ValueError(
            f"its {show(answer)} must be one message of role assistant, perhaps behind the messages"
            f" of its {show(prompt)}, as only that is trained; behind those it has {roles}. What"
            f" comes before the answer belongs to {show(prompt)}"
        )
    return {"messages": [*begin, *said], **tools_of(row)}


def _alike(some: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> bool:
    """Whether they say the same, whatever else data sets note beside it."""
    one, other = ([(m["role"], m.get("content")) for m in each] for each in (some, others))
    return one == other


def collate(longest: int) -> Callable[[Sequence[Sample]], tuple[mx.array, mx.array]]:
    """Makes a batch: tokens of all that are chosen, and below them of all that are rejected, padded
    with 0; and which of them, from the second on, belong to an answer."""

    def batch(samples: Sequence[Sample]) -> tuple[mx.array, mx.array]:
        rows = [sample[side] for side in (0, 1) for sample in samples]
        wide = width(max(len(row) for row, _ in rows), longest)
        tokens = np.zeros((len(rows), wide), np.int32)
        mask = np.zeros((len(rows), wide), np.uint8)
        for at, (row, offset) in enumerate(rows):
            tokens[at, : len(row)] = row
            mask[at, max(offset, 1) : len(row)] = 1
        return mx.array(tokens), mx.array(mask[:, 1:]).astype(mx.bool_)

    return batch


def reference_of(model: Any, config: Dpo) -> Any:
    """The ``model`` as it is now, which has been prepared for ``config`` and not been trained. It
    holds the same arrays.

    Raises:
        UsageError: it can't be loaded.
    """
    reference = load(config)[0]
    prepare(reference, dataclasses.replace(config, grad_checkpoint=False, resume_adapter_file=None))
    reference.update(model.parameters())
    reference.freeze()
    reference.eval()
    return reference


def preference_loss(reference: Any, beta: float) -> Callable[..., Weighted]:
    """A loss over batches as :func:`collate` makes them. Each pair weighs the same."""

    def loss(model: Any, tokens: mx.array, trained: mx.array) -> Weighted:
        gain = likelihood(model, tokens, trained)
        gain = gain - mx.stop_gradient(likelihood(reference, tokens, trained))
        pairs = tokens.shape[0] // 2
        margin = beta * (gain[:pairs] - gain[pairs:])
        shown = {"margin": margin.mean(), "accuracy": (margin > 0).mean()}
        return Weighted(mx.logaddexp(0.0, -margin).mean(), mx.array(pairs), shown)

    return loss


def likelihood(model: Any, tokens: mx.array, trained: mx.array) -> mx.array:
    """The logarithm, for each row, of how likely its ``trained`` tokens are."""
    losses = nn.losses.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:])
    return -(losses.astype(mx.float32) * trained).sum(axis=1)
