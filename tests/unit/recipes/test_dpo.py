"""Preferences: rows, the model that training began with, and the loss."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.nn.utils import value_and_grad
from mlx.utils import tree_flatten

from elasticd.errors import UsageError
from elasticd.recipes import dpo, models
from elasticd.recipes.rows import RowOrder
from elasticd.settings.recipe import Dpo
from elasticd.train.states.base import Base
from tests import tinylm

USER = {"role": "user", "content": "hi"}
GOOD, BAD = ({"role": "assistant", "content": text} for text in ("you", "no"))


@pytest.fixture
def config(model_folder: Path) -> Dpo:
    return Dpo(model=str(model_folder), num_layers=-1)


def made(config: Dpo) -> tuple[Any, Any]:
    """A model that is to be trained, and what it was."""
    mx.random.seed(0)
    model = models.load(config)[0]
    models.prepare(model, config)
    Base.of(model, {})
    return model, dpo.reference_of(model, config)


def batch_of(count: int = 3) -> tuple[mx.array, mx.array]:
    dice = np.random.default_rng(0)
    rows = [
        tuple((dice.integers(1, 255, size).astype(np.int32), 4) for size in (9 + n, 14 - n))
        for n in range(count)
    ]
    return dpo.collate(64)(rows)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "hi", "chosen": "you", "rejected": "no"},
        {"prompt": "hi", "chosen": [GOOD], "rejected": [BAD]},
        {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
        {"prompt": "hi", "chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {"prompt": [USER], "chosen": [{**USER, "id": 7}, GOOD], "rejected": [BAD]},
    ],
)
def test_rows_are_chats_of_the_prompt_and_an_answer(
    row: dict[str, Any], tmp_path: Path, tokenizer: Any, config: Dpo
) -> None:
    rows = dpo.read_pairs(tinylm.write_rows(tmp_path / "train.jsonl", [row]), tokenizer, config)
    ((chosen, rejected),) = rows.samples
    for (tokens, offset), answer in ((chosen, GOOD), (rejected, BAD)):
        assert tokens.tolist() == list(
            tokenizer.apply_chat_template([USER, answer], return_dict=False)
        )
        assert tokenizer.decode(tokens[offset:].tolist()).strip() == answer["content"]


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([{"prompt": "a", "chosen": "b"}],
         "train.jsonl:1: a row of preferences has prompt, chosen and rejected; this row has"
         ' "prompt", "chosen", and no rejected. If yours are called otherwise, say so:'
         " prompt_feature, chosen_feature and rejected_feature"),
        ([{"prompt": "a", "chosen": "b", "rejected": "c"}, {"prompt": "a", "chosen": "b"}],
         "train.jsonl:2: this row can't be read: it has no \"rejected\""),
        ([{"prompt": "a", "chosen": "b", "rejected": "c"}, {"prompt": "a", "chosen": "b",
         "rejected": None}],
         "train.jsonl:2: this row can't be read: its \"rejected\" must be a text, not null"),
        ([{"prompt": "a", "chosen": [GOOD], "rejected": None}],
         "train.jsonl:1: this row can't be read: its \"rejected\" must be a list of messages, not"
         " null"),
        ([{"prompt": 5, "chosen": [GOOD], "rejected": [BAD]}],
         "train.jsonl:1: this row can't be read: its \"prompt\" must be a text, not 5"),
        ([{"prompt": "hi", "chosen": [GOOD, USER, GOOD], "rejected": [BAD]}],
         "train.jsonl:1: this row can't be read: its \"chosen\" must be one message of role"
         " assistant, perhaps behind the messages of its \"prompt\", as only that is trained;"
         " behind those it has assistant, user, assistant. What comes before the answer belongs to"
         " \"prompt\""),
        ([{"prompt": "hi", "chosen": [GOOD], "rejected": [BAD]}, {"prompt": "hi",
         "chosen": [USER, GOOD], "rejected": [BAD, USER]}],
         "train.jsonl:2: this row can't be read: its \"rejected\" must be one message of role"
         " assistant, perhaps behind the messages of its \"prompt\", as only that is trained;"
         " behind those it has assistant, user. What comes before the answer belongs to"
         " \"prompt\""),
        ([{"prompt": "hi", "chosen": [USER], "rejected": [USER, BAD]}],
         "train.jsonl:1: this row can't be read: its \"chosen\" must be one message of role"
         " assistant, perhaps behind the messages of its \"prompt\", as only that is trained;"
         " behind those it has none. What comes before the answer belongs to \"prompt\""),
    ],
)  # fmt: skip
def test_wrong_rows_are_named(
    rows: list[Any], error: str, tmp_path: Path, tokenizer: Any, config: Dpo
) -> None:
    file = tinylm.write_rows(tmp_path / "train.jsonl", rows)
    with pytest.raises(UsageError) as raised:
        dpo.read_pairs(file, tokenizer, config)
    assert str(raised.value).endswith(error)


@pytest.mark.parametrize("answers", [("you", "no"), ([GOOD], [BAD])])
def test_templates_are_given_a_rows_tools(
    answers: Any, tmp_path: Path, tokenizer: Any, config: Dpo
) -> None:
    tools = [{"type": "function", "function": {"name": "look"}}]
    row = {"prompt": "hi", "chosen": answers[0], "rejected": answers[1], "tools": tools}
    rows = dpo.read_pairs(tinylm.write_rows(tmp_path / "train.jsonl", [row]), tokenizer, config)
    for (tokens, offset), answer in zip(rows.samples[0], (GOOD, BAD), strict=True):
        assert tokenizer.decode(tokens[:offset].tolist()) == "look;u:hi\na:"
        assert tokenizer.decode(tokens[offset:].tolist()) == f"{answer['content']}\n"


def test_pairs_that_are_cut_off_before_an_answer_are_left_out(
    tmp_path: Path, tokenizer: Any, config: Dpo
) -> None:
    rows = [{"prompt": "x" * n, "chosen": "you", "rejected": "no"} for n in (2, 60)]
    file = tinylm.write_rows(tmp_path / "train.jsonl", rows)
    found = dpo.read_pairs(file, tokenizer, replace(config, max_seq_length=20))
    assert len(found.samples) == 1 and found.untrained == (2,)


def test_the_order_depends_on_every_answer() -> None:
    def pairs(last: int) -> list[Any]:
        return [((np.full(5, n, np.int32), 1), (np.full(4, n, np.int32), 1)) for n in range(30)] + [
            ((np.full(5, 0, np.int32), 1), (np.full(4, last, np.int32), 1))
        ]

    one, two = (RowOrder.of(pairs(last), 4, 0).epoch(0).tolist() for last in (1, 2))
    assert one != two and one == RowOrder.of(pairs(1), 4, 0).epoch(0).tolist()


@pytest.mark.parametrize("kind", ["lora", "dora", "full"])
def test_training_begins_at_the_logarithm_of_two(kind: str, config: Dpo) -> None:
    model, reference = made(replace(config, fine_tune_type=kind))  # type: ignore[arg-type]
    loss = dpo.preference_loss(reference, 0.5)
    mean, weight, shown = loss(model, *batch_of())
    assert mean.item() == pytest.approx(math.log(2), abs=1e-6)
    assert (weight.item(), shown["margin"].item()) == (3, pytest.approx(0, abs=1e-6))


def test_the_loss_is_the_one_of_the_paper(config: Dpo) -> None:
    model, reference = made(config)
    trained: Any = tree_flatten(model.trainable_parameters())
    model.load_weights([(n, a + 0.05) for n, a in trained], strict=False)
    tokens, mask = batch_of()
    mean, _, shown = dpo.preference_loss(reference, 0.5)(model, tokens, mask)

    def said(of: Any, row: int) -> float:
        """The logarithm of how likely the row's answer is, a token at a time."""
        logits = of(tokens[row : row + 1, :-1])[0]
        scores = logits - mx.logsumexp(logits, axis=1, keepdims=True)
        places = np.flatnonzero(np.array(mask[row])).tolist()
        return sum(float(scores[at, tokens[row, at + 1]].item()) for at in places)

    gains = [said(model, row) - said(reference, row) for row in range(6)]
    margins = [0.5 * (chosen - other) for chosen, other in zip(gains[:3], gains[3:], strict=True)]
    assert shown["margin"].item() == pytest.approx(sum(margins) / 3, rel=1e-3)
    assert shown["accuracy"].item() == pytest.approx(sum(m > 0 for m in margins) / 3)
    expected = [math.log1p(math.exp(-margin)) for margin in margins]
    assert mean.item() == pytest.approx(sum(expected) / 3, rel=1e-3)


def test_what_it_was_is_not_trained_and_has_the_same_arrays(config: Dpo) -> None:
    model, reference = made(config)
    theirs = dict(models.flat(reference.parameters()))
    assert all(theirs[name] is array for name, array in models.flat(model.parameters()))
    assert not models.flat(reference.trainable_parameters())
    loss = dpo.preference_loss(reference, 0.5)
    _, gradients = value_and_grad(model, loss)(model, *batch_of())
    assert {name for name, _ in models.flat(gradients)} == {
        name for name, _ in models.flat(model.trainable_parameters())
    }


def test_adapters_that_are_gone_on_with_are_part_of_what_it_was(
    config: Dpo, tmp_path: Path
) -> None:
    model = made(config)[0]
    trained = {name: array + 0.05 for name, array in models.flat(model.trainable_parameters())}
    mx.save_safetensors(str(tmp_path / "a.safetensors"), trained)
    again, reference = made(replace(config, resume_adapter_file=str(tmp_path / "a.safetensors")))
    mean, _, _ = dpo.preference_loss(reference, 0.5)(again, *batch_of())
    assert mean.item() == pytest.approx(math.log(2), abs=1e-6)
    prompt = mx.array([[1, 2, 3]])
    assert not mx.allclose(reference(prompt), models.load(config)[0](prompt), atol=1e-3).item()
