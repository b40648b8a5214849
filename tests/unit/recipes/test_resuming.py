"""Adapters to begin with: what is taken of a file, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from elasticd.errors import UsageError
from elasticd.recipes import models
from elasticd.recipes.adapters import ADAPTERS, CONFIG, AdapterFolder, Meaning
from elasticd.settings.recipe import LoraParameters, MlxLm


def prepared(config: MlxLm) -> Any:
    model = models.load(config)[0]
    models.prepare(model, config)
    return model


def test_adapters_are_gone_on_with(config: MlxLm, tmp_path: Path) -> None:
    model = prepared(config)
    folder = AdapterFolder(tmp_path, "", model, Meaning.of(config))
    name = "model.layers.0.self_attn.q_proj.lora_b"
    model.load_weights([(name, mx.ones((8, 64)))], strict=False)
    folder.write(ADAPTERS)
    config = replace(config, resume_adapter_file=str(tmp_path / ADAPTERS))
    other = prepared(config)
    found: Any = dict(tree_flatten(other.parameters()))
    assert found[name].tolist() == mx.ones((8, 64)).tolist()
    with pytest.raises(UsageError, match="does not fit the model"):
        prepared(replace(config, lora_parameters=LoraParameters(rank=2)))


def test_of_a_folder_the_file_in_it_is_named(config: MlxLm, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        prepared(replace(config, resume_adapter_file=f"{tmp_path}/"))
    said = f" is a folder: name the file in it, {tmp_path}/{ADAPTERS}"
    assert str(refused.value).endswith(said)


@pytest.mark.parametrize("kind", ["lora", "dora", "full"])
def test_a_file_of_more_layers_than_are_trained_is_refused(
    kind: str, config: MlxLm, tmp_path: Path
) -> None:
    """The files that are written would lack a layer on which the others rely."""
    config = replace(config, fine_tune_type=kind)  # type: ignore[arg-type]
    model = prepared(config)
    AdapterFolder(tmp_path, "", model, Meaning.of(config)).write(ADAPTERS)
    config = replace(config, resume_adapter_file=str(tmp_path / ADAPTERS))
    prepared(config)
    with pytest.raises(UsageError, match=r"trains layer 0 too: num_layers must be at least 2$"):
        prepared(replace(config, num_layers=1))


@pytest.mark.parametrize("by_head", [True, False])
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            {"lora_parameters": LoraParameters(scale=10.0)},
            r"with lora_parameters\.scale = 20\.0, .* job's 10\.0: set .*scale to 20\.0$",
        ),
        (
            {"fine_tune_type": "dora"},
            'with fine_tune_type = "lora", .* job\'s "dora": set fine_tune_type to "lora"$',
        ),
        ({"fine_tune_type": "full"}, 'set fine_tune_type to "lora"$'),
    ],
)
def test_adapters_that_would_be_another_model_are_refused(
    by_head: bool, change: dict[str, Any], error: str, config: MlxLm, tmp_path: Path
) -> None:
    """Ours say in their head what they are, mlx-lm's by the file beside them."""
    model = prepared(config)
    file = tmp_path / ADAPTERS
    AdapterFolder(tmp_path, "", model, Meaning.of(config)).write(ADAPTERS)
    if not by_head:
        loaded: Any = mx.load(str(file))
        mx.save_safetensors(str(file), loaded)
        said = {"fine_tune_type": "lora", "lora_parameters": {"rank": 8, "scale": 20.0}}
        (tmp_path / CONFIG).write_text(json.dumps(said))
    config = replace(config, resume_adapter_file=str(file))
    prepared(config)
    with pytest.raises(UsageError, match=error):
        prepared(replace(config, **change))


@pytest.mark.parametrize(
    "beside", [None, "{", "[]", '{"peft_type": "LORA", "lora_alpha": 8}', '{"lora_parameters": 1}']
)
def test_adapters_of_which_nothing_is_known_are_taken(beside: str | None, tmp_path: Path) -> None:
    if beside is not None:
        (tmp_path / CONFIG).write_text(beside)
    assert Meaning.told(tmp_path / ADAPTERS, {"step": "3"}) == Meaning(None, None)


def test_what_is_not_trained_is_not_taken_from_a_file(config: MlxLm, tmp_path: Path) -> None:
    file = tmp_path / ADAPTERS
    mx.save_safetensors(str(file), {"model.norm.weight": mx.zeros((64,))})
    with pytest.raises(UsageError, match=r"model\.norm\.weight is not trained here"):
        prepared(replace(config, resume_adapter_file=str(file)))
    mx.save(str(tmp_path / "a.npy"), mx.zeros((2,)))
    config = replace(config, resume_adapter_file=str(tmp_path / "a.npy"))
    with pytest.raises(UsageError, match="has no names"):
        prepared(config)


@pytest.mark.parametrize("kind", [mx.bfloat16, mx.float16])
def test_adapters_of_few_digits_are_trained_with_as_many_as_others(
    kind: mx.Dtype, config: MlxLm, tmp_path: Path
) -> None:
    """What a step adds to them would be lost."""
    file, name = tmp_path / ADAPTERS, "model.layers.0.self_attn.q_proj.lora_b"
    mx.save_safetensors(str(file), {name: mx.full((8, 64), 0.1, kind)})
    model = prepared(replace(config, resume_adapter_file=str(file)))
    trained: Any = dict(tree_flatten(model.trainable_parameters()))
    assert {array.dtype for array in trained.values()} == {mx.float32}
    assert trained[name][0, 0].item() == mx.array(0.1, kind).item()


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_weights_that_would_lose_digits_are_refused(
    kind: str, config: MlxLm, tmp_path: Path
) -> None:
    """Of a full fine-tuning, whose model is of another type."""
    config = replace(config, fine_tune_type="full")
    model, file = models.load(config)[0], tmp_path / ADAPTERS
    model.set_dtype(mx.bfloat16)
    name = "model.layers.1.input_layernorm.weight"
    mx.save_safetensors(str(file), {name: mx.ones((64,), getattr(mx, kind))})
    config = replace(config, resume_adapter_file=str(file))
    with pytest.raises(UsageError, match=f"{name} is of type {kind}, and bfloat16 is trained here"):
        models.prepare(model, config)
    mx.save_safetensors(str(file), {name: mx.full((64,), 2.0, mx.bfloat16)})
    models.prepare(model, config)
    assert model.model.layers[1].input_layernorm.weight.sum().item() == 128.0
