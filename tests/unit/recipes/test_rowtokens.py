"""Tokens of a recipe's rows are made once on a node, and again where they would be others."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticd.errors import UsageError
from elasticd.recipes import dpo
from elasticd.recipes.rows import Rows, read_rows
from elasticd.recipes.rowtokens import identity
from elasticd.settings.recipe import Dpo, MlxLm
from elasticd.types import CACHE_VARIABLE
from tests import tinylm

ROWS = [{"prompt": "a" * n, "completion": "b" * 9} for n in (3, 40, 5)]
PAIR = {"prompt": "which?", "chosen": "this", "rejected": "not that"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "tokens"


class Counting:
    """A tokenizer that counts what it is asked."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self.asked = tokenizer, 0

    def __getattr__(self, name: str) -> Any:
        self.asked += name in ("encode", "apply_chat_template")
        return getattr(self._tokenizer, name)


def alike(one: Rows, other: Rows) -> bool:
    def shown(rows: Rows) -> Any:
        return [[(t.tolist(), t.dtype, at) for t, at in sample] for sample in rows.samples]

    rest = (one.untrained, one.cut) == (other.untrained, other.cut)
    return rest and shown(one) == shown(other)


def test_they_are_made_once_and_are_the_same(
    cache: Path, tmp_path: Path, tokenizer: Any, config: MlxLm
) -> None:
    config = replace(config, mask_prompt=True, max_seq_length=30)
    file = tinylm.write_rows(tmp_path / "train.jsonl", ROWS)
    plain = read_rows(file, tokenizer, config)
    assert plain.untrained == (2,) and plain.cut == 1 and not cache.exists()
    counting = Counting(tokenizer)
    for _ in range(2):
        assert alike(read_rows(file, counting, config, identity(config)), plain)
        made = counting.asked
    assert made > 0 and counting.asked == made
    moved = file.rename(tmp_path / "elsewhere.jsonl")
    assert alike(read_rows(moved, counting, config, identity(config)), plain)
    assert counting.asked == made and len(list(cache.iterdir())) == 1


def test_what_a_mac_writes_into_the_folder_changes_nothing(
    tmp_path: Path, model_folder: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    config = Dpo(model=str(folder))
    before = identity(config)
    (folder / ".DS_Store").write_bytes(b"where its window was")
    (folder / ".cache" / "huggingface").mkdir(parents=True)
    (folder / ".cache" / "huggingface" / "x.metadata").write_text("when it was fetched")
    assert identity(config) == before
    (folder / "tokenizer_notes.json").write_text("{}")
    assert identity(config) != before


def test_pairs(cache: Path, tmp_path: Path, tokenizer: Any, model_folder: Path) -> None:
    config = Dpo(model=str(model_folder))
    file = tinylm.write_rows(tmp_path / "train.jsonl", [PAIR] * 2)
    counting, plain = Counting(tokenizer), dpo.read_pairs(file, tokenizer, config)
    for _ in range(2):
        assert alike(dpo.read_pairs(file, counting, config, identity(config)), plain)
    assert counting.asked == 8, "of each answer once with its prompt, and once the prompt"


def test_what_makes_others(
    cache: Path, tmp_path: Path, tokenizer: Any, config: MlxLm, model_folder: Path
) -> None:
    """Rows, the tokenizer, its template, what the job says of rows; not what it trains with."""
    file = tinylm.write_rows(tmp_path / "train.jsonl", ROWS)
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    config = replace(config, model=str(folder))

    def keys() -> int:
        read_rows(file, tokenizer, config, identity(config))
        return len(list(cache.iterdir()))

    assert keys() == 1
    config = replace(config, learning_rate=7.0, num_layers=1, model=str(folder))
    (folder / "model.safetensors").write_bytes(b"other weights")
    assert keys() == 1
    config = replace(config, mask_prompt=True)
    assert keys() == 2
    config = replace(config, max_seq_length=20)
    assert keys() == 3
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "x": 1}))
    assert keys() == 4
    (folder / "templates").mkdir()
    (folder / "templates" / "chat_template.jinja").write_text("{{ messages }}")
    assert keys() == 5
    file.write_text(file.read_text().replace("bbb", "bcb"))
    assert keys() == 6


def test_an_error_names_the_row_as_without(
    cache: Path, tmp_path: Path, tokenizer: Any, config: MlxLm
) -> None:
    file = tinylm.write_rows(tmp_path / "train.jsonl", [*ROWS, {"prompt": None, "completion": "x"}])
    why = r"train\.jsonl:4: this row can.t be read: its .prompt"
    for key in ("", identity(config)):
        with pytest.raises(UsageError, match=why):
            read_rows(file, tokenizer, config, key)
    assert list(cache.iterdir()) == [], "nothing half made is left"


def test_a_disk_that_keeps_nothing_costs_only_time(
    cache: Path, tmp_path: Path, tokenizer: Any, config: MlxLm, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.parent.write_text("a file has its place")
    file = tinylm.write_rows(tmp_path / "train.jsonl", ROWS)
    assert alike(
        read_rows(file, tokenizer, config, identity(config)), read_rows(file, tokenizer, config)
    )
    assert "tokens are made anew each time" in capsys.readouterr().err


def test_a_damaged_row_is_made_anew(
    cache: Path, tmp_path: Path, tokenizer: Any, config: MlxLm
) -> None:
    file = tinylm.write_rows(tmp_path / "train.jsonl", ROWS)
    plain = read_rows(file, tokenizer, config, identity(config))
    (kept,) = cache.iterdir()
    data = np.fromfile(kept, np.uint8)
    data[20] ^= 1
    data.tofile(kept)
    assert alike(read_rows(file, tokenizer, config, identity(config)), plain)
