"""Rows of JSON lines: formats and masks as mlx-lm has them, the order as it should be."""

from __future__ import annotations

import codecs
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import UsageError
from elasticd.recipes import models
from elasticd.recipes.rows import RowOrder, RowSource, RowStream, collate, read_rows, told
from elasticd.recovery.samples import without
from elasticd.settings.recipe import MlxLm
from tests import tinylm

CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "you"}]
TOOLS = [{"type": "function", "function": {"name": "look_up"}}]
FORMATS: dict[str, dict[str, Any]] = {
    "text": {"text": "some words"},
    "completions": {"prompt": "two and two", "completion": "four"},
    "chat": {"messages": CHAT},
    "tools": {"messages": CHAT, "tools": TOOLS},
    "completions with tools": {"prompt": "two and two", "completion": "four", "tools": TOOLS},
}


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("kind", FORMATS)
def test_rows_are_what_mlx_lm_makes_of_them(
    kind: str, mask: bool, tmp_path: Path, tokenizer: Any, config: MlxLm
) -> None:
    from mlx_lm.tuner.datasets import load_local_dataset

    config = replace(config, mask_prompt=mask)
    file = tinylm.write_rows(tmp_path / "train.jsonl", [FORMATS[kind]] * 2)
    if mask and kind == "text":
        with pytest.raises(UsageError, match=r"train\.jsonl:1: rows of .text. have no prompt"):
            read_rows(file, tokenizer, config)
        return
    theirs = load_local_dataset(tmp_path, tokenizer, config)[0]
    tokens, offset = theirs.process(theirs[0])
    for ((got, start),) in read_rows(file, tokenizer, config).samples:
        assert (got.tolist(), start) == (tokens, offset)
        assert ("look_up" in tokenizer.decode(got.tolist())) == ("tools" in FORMATS[kind])
    assert (offset > 0) == mask


def test_rows_that_train_nothing_are_left_out_and_named(
    tmp_path: Path, tokenizer: Any, config: MlxLm
) -> None:
    long = {"prompt": "x" * 40, "completion": "y"}
    file = tinylm.write_rows(tmp_path / "train.jsonl", [FORMATS["completions"], long])
    config = replace(config, mask_prompt=True, max_seq_length=30)
    rows = read_rows(file, tokenizer, config)
    assert len(rows.samples) == 1 and rows.untrained == (2,) and rows.cut == 1
    first, second = told("train.jsonl", rows, 30)
    assert "1 rows train nothing" in first and first.endswith("line 2")
    assert "max_seq_length = 30" in second
    with pytest.raises(UsageError, match="no row trains anything"):
        read_rows(file, tokenizer, replace(config, max_seq_length=2))


ALPACA = (
    'train.jsonl:1: this row has "instruction", "input", "output"; a row needs "messages", a list'
    ' of {"role": …, "content": …}, or "prompt" and "completion", or "text". If yours are called'
    " otherwise, say so: chat_feature, prompt_feature and completion_feature, or text_feature"
)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "has no rows"),
        ('{"text": "a"}\n\n{"text": "b"\n', "train.jsonl:3: is no JSON:"),
        ('{"text": "a"}\n[1]\n', "train.jsonl:2: is no JSON object"),
        (
            '{"text": "a"}\n{"txt": "b"}\n',
            'train.jsonl:2: this row can\'t be read: it has no "text"',
        ),
        ('{"instruction": "a", "input": "", "output": "b"}\n', ALPACA),
        ('{"conversations": [{"from": "human", "value": "a"}]}\n',
         'train.jsonl:1: this row has "conversations"; a row needs "messages", a list of {"role'),
        ('{"Text": "a"}\n', 'train.jsonl:1: this row has "Text"; a row needs "messages", '),
        ("{}\n", "train.jsonl:1: this row is empty; a row needs "),
        ('[\n  {"text": "a"},\n  {"text": "b"}\n]\n',
         "train.jsonl:1: is no JSON: Expecting value: line 1 column 2 (char 1); a file of rows is"
         " no array: there must be one JSON object a line, without [ and ]"),
        ('[{"text": "a"}, {"text": "b"}]', "train.jsonl:1: is no JSON object; a file of rows is"),
        ('{\n  "text": "a"\n}\n', "; there must be one JSON object a line"),
    ],
)  # fmt: skip
def test_wrong_files_are_named(
    text: str, error: str, tmp_path: Path, tokenizer: Any, config: MlxLm
) -> None:
    (tmp_path / "train.jsonl").write_text(text)
    with pytest.raises(UsageError) as raised:
        read_rows(tmp_path / "train.jsonl", tokenizer, config)
    assert error in str(raised.value)


DONE = '{"prompt": "a", "completion": "b"}'
TALK = json.dumps(FORMATS["chat"])


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        (DONE, '{"prompt": "a"}', 'it has no "completion"'),
        (DONE, '{"prompt": "a", "completion": null}', '"completion" must be a text, not null'),
        (DONE, '{"prompt": "a", "completion": 5}', '"completion" must be a text, not 5'),
        (DONE, '{"prompt": ["a"], "completion": "b"}', '"prompt" must be a text, not an array'),
        ('{"text": "a"}', '{"text": ""}', 'its "text" is empty'),
        ('{"text": "a"}', '{"text": null}', '"text" must be a text, not null'),
        (TALK, '{"text": "a"}', 'it has no "messages"'),
        (TALK, '{"messages": []}', '"messages" must be a list of messages, not an empty list'),
        (TALK, '{"messages": "a"}', '"messages" must be a list of messages, not "a"'),
        (TALK, '{"messages": ["a"]}', 'message 1 of its "messages" must have a role and a content'),
        (TALK, '{"messages": [{"content": "a"}]}', 
         'message 1 of its "messages" must have a role, a text, and a content, not "content"'),
        (TALK, '{"messages": [{"from": "human", "value": "a"}]}',
         'must have a role, a text, and a content, not "from", "value"'),
        (TALK, '{"messages": [{"role": "user", "content": [{"type": "image", "url": "a"}]}]}',
         'message 1 of its "messages" must have a content, a text or parts of text, and one of its'
         " parts is none"),
        (TALK, '{"messages": [{"role": "user", "content": null}]}',
         'message 1 of its "messages" must have a content, a text, not null'),
    ],
)  # fmt: skip
def test_wrong_rows_are_told_in_words(
    first: str, second: str, error: str, tmp_path: Path, tokenizer: Any, config: MlxLm
) -> None:
    (tmp_path / "train.jsonl").write_text(f"{first}\n{second}\n")
    with pytest.raises(UsageError) as raised:
        read_rows(tmp_path / "train.jsonl", tokenizer, config)
    said = str(raised.value)
    assert "train.jsonl:2: this row can't be read: " in said and said.endswith(error)


def test_parts_of_text_are_joined(tmp_path: Path, tokenizer: Any, config: MlxLm) -> None:
    parts = [[{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}], ["yo"]]
    rows = [
        {"messages": [{"role": "user", "content": one}, {"role": "assistant", "content": other}]}
        for one, other in (("Hello", "yo"), parts)
    ]
    file = tinylm.write_rows(tmp_path / "train.jsonl", rows)
    ((one, _),), ((other, _),) = read_rows(file, tokenizer, config).samples
    assert list(one) == list(other)


def test_a_chat_of_one_message_has_no_prompt(tmp_path: Path, tokenizer: Any, config: MlxLm) -> None:
    rows = [FORMATS["chat"], {"messages": CHAT[:1]}]
    file = tinylm.write_rows(tmp_path / "train.jsonl", rows)
    assert len(read_rows(file, tokenizer, config).samples) == 2
    with pytest.raises(UsageError) as raised:
        read_rows(file, tokenizer, replace(config, mask_prompt=True))
    assert str(raised.value).endswith(
        "train.jsonl:2: this row can't be read: nothing stands before its last message, so"
        " mask_prompt leaves no prompt"
    )


@pytest.mark.parametrize("kind", FORMATS)
def test_a_model_without_a_template_is_the_cause_and_no_row(
    kind: str, tmp_path: Path, model_folder: Path, config: MlxLm
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    (folder / "chat_template.jinja").unlink()
    config = replace(config, model=str(folder))
    tokenizer = models.load(config)[1]
    file = tinylm.write_rows(tmp_path / "train.jsonl", [FORMATS[kind]])
    if kind == "text":
        assert len(read_rows(file, tokenizer, config).samples) == 1
        return
    with pytest.raises(UsageError) as raised:
        read_rows(file, tokenizer, config)
    assert str(raised.value).startswith(f"the model {folder} has no chat template (")
    assert 'or rows of {"text": …}' in str(raised.value)


def test_a_byte_order_mark_is_skipped(tmp_path: Path, tokenizer: Any, config: MlxLm) -> None:
    file = tinylm.write_rows(tmp_path / "train.jsonl", [FORMATS["text"]] * 2)
    plain = read_rows(file, tokenizer, config).samples
    file.write_bytes(codecs.BOM_UTF8 + file.read_bytes())
    marked = read_rows(file, tokenizer, config).samples
    assert [t.tolist() for ((t, _),) in marked] == [t.tolist() for ((t, _),) in plain]
    file.write_bytes(file.read_bytes() + b'{"text": "caf\xe9"}')
    with pytest.raises(UsageError, match=r"train\.jsonl:3: is no UTF-8: there is a byte 0xe9"):
        read_rows(file, tokenizer, config)


def test_who_calls_a_tool_may_say_nothing(tmp_path: Path, tokenizer: Any, config: MlxLm) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}
    file = tinylm.write_rows(tmp_path / "train.jsonl", [{"messages": [CHAT[0], call]}])
    assert len(read_rows(file, tokenizer, config).samples) == 1


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b'{"text": "\\ud83d"}', "train.jsonl:2: has half of a character"),
        (b'{"text": "caf\xe9"}', "train.jsonl:2: is no UTF-8: there is a byte 0xe9"),
    ],
)
def test_what_is_no_text_is_named(
    line: bytes, error: str, tmp_path: Path, tokenizer: Any, config: MlxLm
) -> None:
    whole = b'{"text": "\\ud83d\\ude00"}\n'
    (tmp_path / "train.jsonl").write_bytes(whole + line + b"\n")
    with pytest.raises(UsageError) as raised:
        read_rows(tmp_path / "train.jsonl", tokenizer, config)
    assert error in str(raised.value)


def test_a_batch_is_as_wide_as_its_longest_row_needs() -> None:
    rows = [((np.arange(1, n + 1, dtype=np.int32), n // 2),) for n in (3, 40)]
    tokens, trained = collate(2048)(rows)
    assert tokens.shape == (2, 65) and trained.shape == (2, 64)
    assert [np.flatnonzero(row).tolist() for row in np.array(trained)] == [
        [0, 1], list(range(19, 39)),
    ]  # fmt: skip
    assert tokens[0].tolist() == [1, 2, 3] + [0] * 62
    assert collate(40)(rows)[0].shape == (2, 40)


LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=60)


@given(LENGTHS, st.integers(1, 16), st.integers(0, 9))
def test_each_epoch_has_each_row_once(lengths: list[int], batch: int, seed: int) -> None:
    order = RowOrder(tuple(lengths), batch, seed)
    for epoch in range(4):
        assert sorted(order.epoch(epoch).tolist()) == list(range(len(lengths)))


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 5))
def test_rows_of_a_batch_are_of_like_length(batch: int, batches: int, seed: int) -> None:
    """Where the rows fill whole batches, no two batches' lengths overlap."""
    lengths = tuple(32 * (n + 1) for n in range(batch * batches))
    found = RowOrder(lengths, batch, seed).epoch(1).reshape(batches, batch)
    assert sorted(sorted(row) for row in found.tolist()) == [
        list(range(at * batch, (at + 1) * batch)) for at in range(batches)
    ]


def test_the_order_is_the_seeds() -> None:
    lengths = tuple(np.random.default_rng(0).integers(1, 200, 50).tolist())
    one, other = RowOrder(lengths, 4, 1), RowOrder(lengths, 4, 2)
    assert one.epoch(0).tolist() == RowOrder(lengths, 4, 1).epoch(0).tolist()
    assert one.epoch(0).tolist() != other.epoch(0).tolist()
    together = [{frozenset(b) for b in one.epoch(e)[:48].reshape(-1, 4).tolist()} for e in (0, 2)]
    assert together[0] != together[1]  # other rows meet in another epoch


def test_a_stream_goes_on_where_its_state_was_taken() -> None:
    samples = [((np.array([n], np.int32), 0),) for n in range(7)]
    order = RowOrder((1,) * 7, 2, 0)
    stream = RowStream(samples, order)
    for _ in range(9):
        next(stream)
    again = RowStream(samples, order)
    again.load_state(stream.state())
    assert [next(again) for _ in range(9)] == [next(stream) for _ in range(9)]


def test_other_rows_have_another_order() -> None:
    """One token of the last row is enough: so a node with other data shows it at the start."""
    rows = [((np.full(5, n, np.int32), 0),) for n in range(40)]
    other = [*rows[:-1], ((np.array([39, 39, 39, 39, 0], np.int32), 0),)]
    one, two = (RowOrder.of(r, 4, 1).epoch(0).tolist() for r in (rows, other))
    assert one == RowOrder.of(rows, 4, 1).epoch(0).tolist()
    assert one[:4] != two[:4] and one != RowOrder.of(rows, 4, 2).epoch(0).tolist()


def told_of(folder: Path, *measured: str) -> dict[str, str]:
    """What a fingerprint has of the rows in a folder."""
    files = [folder / f"{name}.jsonl" for name in measured]
    source = RowSource((), RowOrder((1,), 1, 0), folder / "train.jsonl", files)
    return {f"data/{name}": text for name, text in source.digests_by_file().items()}


def test_rows_that_are_measured_are_told_by_line_or_that_there_are_none(tmp_path: Path) -> None:
    have, other = tmp_path / "have", tmp_path / "other"
    for folder, last in ((have, "one"), (other, "two")):
        tinylm.write_rows(folder / "train.jsonl", tinylm.completions(3, 3))
        tinylm.write_rows(folder / "valid.jsonl", [{"text": "same"}, {"text": last}])
    told, as_other = told_of(have, "valid", "test"), told_of(other, "valid", "test")
    assert told["data/sample 0"] == "valid.jsonl: 2 lines"
    assert told["data/sample 3"] == "test.jsonl: none"
    (line,) = (name for name in told if told[name] != as_other[name])
    assert told[line].startswith("valid.jsonl:2: ")
    (other / "valid.jsonl").unlink()
    assert told_of(other, "valid")["data/sample 0"] == "valid.jsonl: none"


def test_lines_of_the_training_file_are_told_alike_whatever_is_told_beside_them(
    tmp_path: Path,
) -> None:
    """A fingerprint names a thousand. Lines that are measured are told apart, as samples."""
    for name in ("train", "valid", "test"):
        tinylm.write_rows(tmp_path / f"{name}.jsonl", tinylm.completions(600, 1))
    alone, both = told_of(tmp_path), told_of(tmp_path, "valid", "test")
    assert alone.keys() < both.keys() and len(both) <= 1000
    assert without(both) == alone
