"""The recipe's model, loss and files, beside mlx-lm's own."""

from __future__ import annotations

import inspect
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest
from mlx.utils import tree_flatten

from elasticd.errors import UsageError
from elasticd.outputs import Listing, list_files
from elasticd.recipes import mlxlm, models
from elasticd.recipes.adapters import ADAPTERS, BEST, AdapterFolder, Meaning, numbered
from elasticd.recipes.rows import collate
from elasticd.settings.job import JobSpec
from elasticd.settings.optimizers import OPTIMIZERS
from elasticd.settings.recipe import LoraParameters, MlxLm, Schedule
from elasticd.train.states.trees import same_bits
from elasticd.train.steps import recompute
from elasticd.train.steps.randomness import mlx_key
from tests import tinylm
from tests.unit.recipes.test_packing import made

LORA = Meaning("lora", 20.0)


@pytest.fixture
def model(model_folder: Path) -> Any:
    from mlx_lm.utils import load

    return load(str(model_folder))[0]


def spec_of(config: MlxLm) -> JobSpec:
    given = {"job": {"name": "a"}, "recipe": {"kind": "mlx-lm", "config": {"model": config.model}}}
    return JobSpec.from_dict(given)


def test_the_loss_is_mlx_lms_less_what_it_counts_of_the_padding(model: Any) -> None:
    from mlx_lm.tuner.trainer import default_loss

    rows = [((np.arange(1, n + 1, dtype=np.int32), offset),) for n, offset in ((5, 0), (30, 9))]
    tokens, trained = collate(2048)(rows)
    spans = mx.array([[0, 5], [9, 30]])
    mean, weight, _ = mlxlm.token_loss(model, tokens, trained)
    right, count = default_loss(model, tokens, spans - mx.array([[0, 1]]))
    assert weight.item() == count.item() == 4 + 21
    assert mean.item() == pytest.approx(right.item(), rel=1e-6)
    assert default_loss(model, tokens, spans)[1].item() == 27  # one target of padding a row


def test_a_batch_that_is_masked_counts_nothing(model: Any) -> None:
    from mlx_lm.tuner.trainer import default_loss

    tokens, trained = collate(2048)([((np.arange(1, 6, dtype=np.int32), 5),)])
    mean, weight, _ = mlxlm.token_loss(model, tokens, trained)
    assert (mean.item(), weight.item()) == (0, 0)
    assert np.isnan(default_loss(model, tokens, mx.array([[9, 5]]))[0].item())


@pytest.mark.parametrize("kind", ["lora", "dora", "full"])
def test_adapters_load_in_mlx_lm(
    kind: str, model: Any, config: MlxLm, model_folder: Path, tmp_path: Path
) -> None:
    from mlx_lm import generate
    from mlx_lm.utils import load

    config = replace(config, fine_tune_type=kind, num_layers=1)  # type: ignore[arg-type]
    models.prepare(model, config)
    trained: Any = tree_flatten(model.trainable_parameters())
    model.load_weights([(n, a + 0.01) for n, a in trained], strict=False)
    folder = AdapterFolder(tmp_path, "out", model, LORA)
    folder.write_config(spec_of(config), config)
    folder.write(ADAPTERS)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["adapter_config.json", ADAPTERS]
    again, tokenizer = load(str(model_folder), adapter_path=str(tmp_path / "out"))[:2]
    prompt = mx.array([[1, 2, 3]])
    model.eval()
    assert mx.allclose(again(prompt), model(prompt), atol=1e-5).item()
    assert not mx.allclose(again(prompt), load(str(model_folder))[0](prompt), atol=1e-5).item()
    assert isinstance(generate(again, tokenizer, prompt="a", max_tokens=1), str)


@pytest.mark.parametrize("below", ["", "sub/adapters"])
def test_what_is_half_written_is_no_output(
    below: str, model: Any, config: MlxLm, tmp_path: Path
) -> None:
    """Nobody copies it, or tells the user that it isn't copied."""
    models.prepare(model, config)
    folder = AdapterFolder(tmp_path, below, model, LORA)
    for name in (ADAPTERS, "0000050_adapters.safetensors", "adapter_config.json"):
        (tmp_path / below / name / "in the way").mkdir(parents=True)
    for write in (
        lambda: folder.write(ADAPTERS),
        lambda: folder.write(numbered(50)),
        lambda: folder.write_config(spec_of(config), config),
    ):
        with pytest.raises(OSError, match="written-"):
            write()
    assert len(list(tmp_path.rglob("written-*"))) == 3
    assert list_files(tmp_path) == Listing(())


def weights(path: Path) -> list[float]:
    loaded: Any = mx.load(str(path))
    return sorted(array.sum().item() for array in loaded.values())


class OneWeight(nn.Module):
    """Its only weight says at which step it was written."""

    def at(self, step: int) -> None:
        self.w = mx.array([float(step)])


def test_the_best_adapters_are_those_that_the_state_knows(tmp_path: Path) -> None:
    model = OneWeight()
    folder = AdapterFolder(tmp_path, "", model, LORA)
    best = tmp_path / BEST
    assert not folder.has_best(3.0, 5), "there are none"
    model.at(12)
    folder.write_best(12, 2.0)
    later = AdapterFolder(tmp_path, "", model, LORA)
    assert later.has_best(2.0, 13) and weights(best) == [12.0], "another process knows them"
    later = AdapterFolder(tmp_path, "", model, LORA)
    assert later.has_best(3.0, 11), "the job went back, and comes there again"
    model.at(18)
    later.write(numbered(18), step=18, loss=1.0)
    model.at(24)
    later.write(numbered(24), step=24)
    assert later.has_best(1.0, 20) and weights(best) == [18.0]
    assert best.read_bytes() == (tmp_path / numbered(18)).read_bytes()
    assert AdapterFolder(tmp_path, "", model, LORA).has_best(1.0, 30)
    assert not later.has_best(0.5, 30) and not best.exists(), "main's are to come"
    later.write(BEST)
    assert later.has_best(0.5, 30) and weights(best) == [24.0], "an earlier version says nothing"


def test_what_is_no_file_of_adapters_is_none_of_the_best(tmp_path: Path) -> None:
    model = OneWeight()
    model.at(6)
    folder = AdapterFolder(tmp_path, "", model, LORA)
    folder.write_best(6, 2.0)
    (tmp_path / numbered(7)).write_bytes(b"half of a file")
    assert folder.has_best(2.0, 9) and not folder.has_best(1.0, 9)
    assert list_files(tmp_path).by_name().keys() == {numbered(7)}


def test_only_what_is_trained_is_reduced(model: Any, config: MlxLm) -> None:
    models.prepare(model, replace(config, num_layers=1))
    trained: Any = tree_flatten(model.trainable_parameters())
    assert trained and all("layers.1." in name and "lora_" in name for name, _ in trained)
    assert {array.dtype for _, array in trained} == {mx.float32}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"num_layers": 3}, "num_layers = 3, and the model has 2; -1: all"),
        ({"lora_parameters": LoraParameters(keys=())}, "name no module"),
        (
            {"lora_parameters": LoraParameters(keys=("self_attn.q_proj", "q"))},
            'no module of the 2 layers that are trained is called "q"$',
        ),
        (
            {"lora_parameters": LoraParameters(keys=("self_attn.q_proj", "v_proj"))},
            'is called "v_proj"; did you mean "self_attn.v_proj"\\?$',
        ),
        ({"resume_adapter_file": "/nowhere"}, "/nowhere can't be read"),
    ],
)
def test_what_can_not_be_trained_is_refused(
    change: dict[str, Any], error: str, model: Any, config: MlxLm
) -> None:
    with pytest.raises(UsageError, match=error):
        models.prepare(model, replace(config, **change))


NVFP4 = {"quant_algo": "NVFP4", "group_size": 16}
MODELOPT = {"quant_method": "modelopt", "quantization": NVFP4}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
MXFP8 = {"quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [32, 32]}


def own(bits: int) -> dict[str, Any]:
    return {"quantization": {"group_size": 64, "bits": bits}}


@pytest.mark.parametrize(
    ("kind", "said", "refused"),
    [
        ("full", own(4), "is quantised"),
        ("dora", own(6), "quantised to 6 bits"),
        ("dora", own(3), "quantised to 3 bits"),
        ("dora", own(4), ""),
        ("lora", own(6), ""),
        ("full", {"quantization_config": {"quant_method": "mxfp4"}}, "is quantised"),
        ("full", {"text_config": {"quantization_config": MODELOPT}}, "is quantised"),
        ("full", {"hf_quant_config.json": MODELOPT}, "is quantised"),
        ("lora", {"hf_quant_config.json": MODELOPT}, ""),
        ("full", {"quantization_config": None, "hf_quant_config.json": MODELOPT}, ""),
        ("lora", {"quantization_config": {"quant_method": "bitnet"}}, "BitNet.*a model that is"),
        ("lora", own(8) | {"quantize_activations": True}, "take quantize_activations out"),
        ("full", {"quantization_config": FP8}, ""),  # mlx-lm dequantises it
        ("full", {"quantization_config": MXFP8}, "is quantised"),
    ],
)
def test_quantised_models_are_refused_before_they_are_loaded(
    kind: str, said: dict[str, Any], refused: str, config: MlxLm, tmp_path: Path
) -> None:
    """Wherever mlx-lm looks for how they are quantised."""
    said = dict(said)
    if beside := said.pop("hf_quant_config.json", None):
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    (tmp_path / "config.json").write_text(json.dumps(said))
    config = replace(config, model=str(tmp_path), fine_tune_type=kind)  # type: ignore[arg-type]
    if not refused:
        models.check_model(config)
        return
    with pytest.raises(UsageError, match=refused):
        models.check_model(config)


QUANTISED: dict[object, dict[str, Any]] = {
    **{bits: {"group_size": 32, "bits": bits, "mode": "affine"} for bits in (2, 3, 4, 5, 6, 8)},
    "mxfp4": {"group_size": 32, "bits": 4, "mode": "mxfp4"},
    "mxfp8": {"group_size": 32, "bits": 8, "mode": "mxfp8"},
    "nvfp4": {"group_size": 16, "bits": 4, "mode": "nvfp4"},
}
EMBEDDING = LoraParameters(keys=("model.embed_tokens",))
BATCH = collate(2048)([((np.arange(1, 20, dtype=np.int32), 0),)])


@pytest.mark.parametrize("quantised", [None, *QUANTISED])
@pytest.mark.parametrize(
    ("kind", "of"),
    [("lora", None), ("dora", None), ("full", None), ("lora", EMBEDDING), ("dora", EMBEDDING)],
)
def test_what_is_refused_is_what_mlx_can_not_do(
    kind: str, of: LoraParameters | None, quantised: Any, model: Any, config: MlxLm, tmp_path: Path
) -> None:
    """Each of these pairs is trained here unless it is refused there."""
    from mlx.nn.utils import value_and_grad

    said = {"quantization": QUANTISED[quantised]} if quantised else {}
    (tmp_path / "config.json").write_text(json.dumps(said))
    config = replace(config, model=str(tmp_path), lora_parameters=of or config.lora_parameters)
    config = replace(config, fine_tune_type=kind)  # type: ignore[arg-type]
    if quantised:
        nn.quantize(model, **QUANTISED[quantised])
    models.prepare(model, config)

    def train() -> float:
        loss, gradients = value_and_grad(model, mlxlm.token_loss)(model, *BATCH)
        optim.SGD(0.01).update(model, gradients)  # so that it is downhill, whatever the first bits
        mx.eval(model.parameters())
        return float(loss.mean.item() - mlxlm.token_loss(model, *BATCH).mean.item())

    refused = []
    for check in (
        lambda: models.check_model(config),
        lambda: models.check_gradient(model, config, mlxlm.token_loss),
    ):
        try:
            check()
        except UsageError as error:
            assert config.model in str(error) and kind in str(error).lower()
            refused.append(check)
    if refused:
        assert len(refused) == 2 or of, "what isn't seen before it is loaded is rare"
        with pytest.raises((RuntimeError, ValueError)):
            train()
    else:
        assert train() > 0


def test_no_weight_is_read_to_know_what_can_be_trained(config: MlxLm, tmp_path: Path) -> None:
    """The file is cut off once it has been opened: a weight that is read fails."""
    folder = tmp_path / "model"
    shutil.copytree(config.model, folder)
    config = replace(config, model=str(folder), lora_parameters=LoraParameters(dropout=0.5))
    loaded = models.load(config)[0]
    models.prepare(loaded, config)
    os.truncate(folder / "model.safetensors", 100_000)
    before = mlx_key()
    models.check_gradient(loaded, config, mlxlm.token_loss)
    assert mlx_key() == before, "nor are random numbers missing after it"
    with pytest.raises(RuntimeError):
        mx.eval(loaded.parameters())


@pytest.mark.parametrize("tune", ["lora", "dora"])
@pytest.mark.parametrize(
    ("kind", "read", "others"),
    [
        ("gemma3n", "altup.prediction_coefs", "v_proj"),
        ("kimi_k3", "self_attention_res_proj", "q_proj"),
    ],
)
def test_a_layer_whose_weight_is_read_takes_no_adapter(
    kind: str, read: str, others: str, tune: str, config: MlxLm, tmp_path: Path
) -> None:
    """And what is said to do instead trains the model."""
    config = replace(config, fine_tune_type=tune)  # type: ignore[arg-type]
    model = made(kind, tmp_path)
    models.prepare(model, config)
    with pytest.raises(UsageError) as caught:
        models.check_gradient(model, config, mlxlm.token_loss)
    said = str(caught.value)
    assert f"can't train the model {config.model}: AttributeError: " in said
    what, _, keys = said.partition("lora_parameters.keys name only others, as ")
    assert what.endswith(f" the weight of {read}, in whose place is an adapter: have ")
    assert f"self_attn.{others}" in keys
    config = replace(config, lora_parameters=LoraParameters(keys=tuple(keys.split(", "))))
    model = made(kind, tmp_path)
    models.prepare(model, config)
    models.check_gradient(model, config, mlxlm.token_loss)


def test_whatever_a_model_raises_is_said_in_a_sentence(config: MlxLm) -> None:
    def loss(*_: Any) -> Any:
        raise error

    for error in (KeyError("x"), IndexError("far"), TypeError("None")):
        with pytest.raises(UsageError, match=f'"lora" can.t train.*: {type(error).__name__}: '):
            models.check_gradient(nn.Linear(2, 2), config, loss)


def test_a_job_ends_before_its_weights_are_read(config: MlxLm, tmp_path: Path) -> None:
    folder = tinylm.write_model(tmp_path / "model", bits=4)
    config = replace(config, model=str(folder), fine_tune_type="dora", lora_parameters=EMBEDDING)
    with pytest.raises(UsageError) as caught:
        mlxlm.Training(spec_of(config), config)
    assert str(caught.value) == (
        'fine_tune_type = "dora" with lora_parameters.keys model.embed_tokens can\'t train the'
        f" model {folder}: [broadcast_shapes] Shapes (1,32,64) and (1,32,8) cannot be broadcast."
        ' It is quantised: "lora" trains such models'
    )


def test_only_files_that_are_measured_are_told(config: MlxLm) -> None:
    """A node may lack the others."""

    def names(**keys: Any) -> list[str]:
        return [str(path) for path in mlxlm.measured(replace(config, data="rows", **keys))]

    valid, test = "rows/valid.jsonl", "rows/test.jsonl"
    assert names() == [valid] and names(test=True) == [valid, test]
    assert names(val_batches=0, test=True, test_batches=-1) == [test]
    assert not names(val_batches=0, test=True, test_batches=0)


def test_a_folder_that_is_not_here_is_named(config: MlxLm, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not on this node"):
        models.check_model(replace(config, model=str(tmp_path / "none")))


def test_the_arguments_of_optimizers_are_mlxs() -> None:
    names = {made.lower(): made for made in dir(optim)}
    for name, arguments in OPTIMIZERS.items():
        taken = inspect.signature(getattr(optim, names[name])).parameters
        assert set(arguments) == {*taken} - {"learning_rate"}
        for key, check in arguments.items():
            usual = taken[key].default
            if usual is not None:
                check(usual)


SCHEDULES = {
    "cosine_decay": (0.1, 10.0, 0.01),
    "exponential_decay": (0.1, 0.9),
    "linear_schedule": (0.1, 0.02, 8.0),
    "step_decay": (0.1, 0.5, 3.0),
}


def rates(made: optim.Optimizer, steps: int) -> list[float]:
    """The learning rate of each step."""
    weights = {"w": mx.ones((2, 2))}
    found = []
    for _ in range(steps):
        weights = made.apply_gradients({"w": mx.ones((2, 2))}, weights)
        found.append(made.learning_rate.item())
    return found


@pytest.mark.parametrize("warmup", [{}, {"warmup": 4}, {"warmup": 4, "warmup_init": 0.05}])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["adam", "adamw", "muon", "sgd", "adafactor"])
def test_optimizers_and_schedules_are_mlx_lms(
    name: Any, schedule: str, warmup: dict[str, Any], config: MlxLm
) -> None:
    from mlx_lm.tuner.utils import build_schedule

    arguments = SCHEDULES[schedule]
    given = {"sgd": {"momentum": 0.5}}
    wanted = Schedule(schedule, arguments, **warmup)
    config = replace(config, optimizer=name, lr_schedule=wanted, optimizer_config=given)
    made = mlxlm.make_optimizer(config)
    assert type(made).__name__.lower() == name
    assert name != "sgd" or getattr(made, "momentum") == 0.5  # noqa: B009
    said = {"name": schedule, "arguments": [*arguments], **warmup}  # as a YAML file has it
    theirs = build_schedule(said)
    found = rates(made, 15)
    assert found == [theirs(mx.array(step)).item() for step in range(15)]
    assert found[0] == pytest.approx(warmup.get("warmup_init", 0.0) if warmup else 0.1)
    assert max(found) == pytest.approx(0.1)


def test_layers_that_recompute_have_the_same_gradients(model_folder: Path, config: MlxLm) -> None:
    from mlx.nn.utils import value_and_grad
    from mlx_lm.utils import load

    batch = collate(2048)([((np.arange(1, 20, dtype=np.int32), 0),)])
    found = []
    for wanted in (False, True):
        mx.random.seed(1)
        model = load(str(model_folder))[0]
        given = replace(config, grad_checkpoint=wanted, lora_parameters=LoraParameters(dropout=0.3))
        models.prepare(model, given)
        loss, gradients = value_and_grad(model, mlxlm.token_loss)(model, *batch)
        flat: Any = tree_flatten(gradients)
        found.append((loss.mean.item(), flat))
    assert found[0][0] == found[1][0]
    for (name, one), (_, other) in zip(found[0][1], found[1][1], strict=True):
        assert mx.array_equal(one, other).item(), name


@pytest.mark.parametrize("kind", ["afm7", "kimi_k3"])
def test_so_they_have_where_some_write_into_what_they_are_given(kind: str, tmp_path: Path) -> None:
    """A cache of keys and values that later layers read, and sums of what earlier ones said."""
    from mlx.nn.utils import value_and_grad

    found = []
    for switch in (recompute.switch_off, recompute.switch_on):
        model = made(kind, tmp_path)
        switch(model)
        loss, gradients = value_and_grad(model, mlxlm.token_loss)(model, *BATCH)
        flat: Any = tree_flatten({"loss": loss.mean, "gradients": gradients})
        found.append(flat)
    for (name, one), (_, other) in zip(*found, strict=True):
        assert same_bits(one, other), name
