"""Models that can't be loaded: the file that is the cause is named, and what to do."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest

from elasticd.errors import UsageError
from elasticd.recipes import models
from elasticd.settings.recipe import MlxLm

Change = Callable[[Path], object]
WEIGHTS = "model.safetensors"


def cut(name: str, at: int) -> Change:
    return lambda folder: os.truncate(folder / name, at)


def written(name: str, text: str) -> Change:
    return lambda folder: (folder / name).write_text(text)


def gone(name: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink()

    return change


def a_shard_is_missing(folder: Path) -> None:
    found = mx.load(str(folder / WEIGHTS))
    assert isinstance(found, dict)
    (folder / WEIGHTS).unlink()
    found.pop(min(found))
    mx.save_safetensors(str(folder / "model-1-of-2.safetensors"), found, {"format": "mlx"})
    files = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(files))
    (folder / f"._{WEIGHTS}.index.json").write_bytes(b"a Mac's, on exFAT")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (cut(WEIGHTS, 5), "model.safetensors: is cut off or damaged (Unable to read"),
        (cut(WEIGHTS, 100), "model.safetensors: is cut off or damaged (The JSON header"),
        (cut(WEIGHTS, 300_000), "model.safetensors: is cut off or damaged (Tensor"),
        (written(WEIGHTS, "version https://git-lfs.github.com/spec/v1"), "model.safetensors: is c"),
        (gone(WEIGHTS), "model.safetensors: is not there"),
        (a_shard_is_missing, "model-2-of-2.safetensors: is not there, and model.safetensors.index"),
        (cut("config.json", 40), "config.json: is no JSON: Expecting"),
        (written("config.json", "[]"), "config.json: is no JSON object"),
        (written("config.json", "{}"), "config.json: has no model_type"),
        (gone("tokenizer.json"), "tokenizer.json: is not there"),
        (cut("tokenizer.json", 40), "tokenizer.json: is no JSON: "),
        (written("tokenizer.json", "[]"), "tokenizer.json: is no JSON object"),
        (written("tokenizer.json", "{}"), "tokenizer.json: is no tokenizer: "),
        (cut("tokenizer_config.json", 40), "tokenizer_config.json: is no JSON: "),
        (written("tokenizer_config.json", "[]"), "tokenizer_config.json: is no JSON object"),
    ],
)
def test_a_broken_file_of_a_model_is_named(
    change: Change, said: str, model_folder: Path, config: MlxLm, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    change(folder)
    config = replace(config, model=str(folder))
    with pytest.raises(UsageError) as raised:
        models.check_model(config)
        models.load(config)
    text = str(raised.value)
    assert text.startswith(f"the model {folder} can't be loaded: {said}")
    assert text.endswith("; fetch or copy it again")
    assert len(text.splitlines()) == 1


def test_an_index_that_is_out_of_date_is_no_cause(
    model_folder: Path, config: MlxLm, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    index = {"weight_map": {"a": "model-2-of-2.safetensors"}}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index))
    models.load(replace(config, model=str(folder)))
    unknown = {**json.loads((folder / "config.json").read_text()), "model_type": "nobodys"}
    (folder / "config.json").write_text(json.dumps(unknown))
    with pytest.raises(UsageError, match="can't be loaded: Model type nobodys not supported"):
        models.load(replace(config, model=str(folder)))


def test_a_folder_without_a_model_says_what_it_lacks(config: MlxLm, tmp_path: Path) -> None:
    config = replace(config, model=str(tmp_path))
    with pytest.raises(UsageError, match=f"^there is no config.json in {tmp_path}: fetch"):
        models.check_model(config)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(UsageError, match=r"these are adapters.* resume_adapter_file = "):
        models.check_model(config)
