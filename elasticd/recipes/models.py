"""Models as mlx-lm loads them, with what is trained of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.nn.utils import value_and_grad
from mlx.utils import tree_flatten

from elasticd.errors import UsageError
from elasticd.machinememory import machine_memory
from elasticd.recipes.modelfiles import config_of, quantization_of, unloadable
from elasticd.recipes.resuming import resume
from elasticd.settings.recipe import HUB, MODEL_CONFIG, MlxLm
from elasticd.settings.rules import meant, show
from elasticd.train import Weighted
from elasticd.train.states.base import Base
from elasticd.train.steps import recompute
from elasticd.train.steps.randomness import undisturbed
from elasticd.train.steps.relief import room_bytes

_NO_DORA_BITS = frozenset({3, 5, 6})
"""Of which no whole number of values fits in a word."""
_UNFIT = (RuntimeError, ValueError, AttributeError, TypeError, LookupError)
"""With which MLX and mlx-lm say that they can't do it."""
_WARM_SHARE = 3
"""Weights are read before they are needed if so many times their size is free."""


def located(config: MlxLm) -> MlxLm:
    """With the folder of the model, if that is a name of the hub's. The network is not asked.

    Raises:
        UsageError: it isn't in this node's cache.
    """
    if not config.model.startswith(HUB):
        return config
    name, _, revision = config.model.removeprefix(HUB).partition("@")
    try:
        from huggingface_hub import constants, snapshot_download
    except ImportError as error:
        raise _missing(error) from None
    try:
        folder = snapshot_download(name, revision=revision or None, local_files_only=True)
    except (OSError, ValueError):
        wanted = f" --revision {revision}" if revision else ""
        raise UsageError(
            f"the model {name} is neither a folder nor in this node's cache of the hub"
            f" ({constants.HF_HUB_CACHE}): fetch it once on each node (hf download {name}{wanted})"
        ) from None
    return dataclasses.replace(config, model=folder)


def load(config: MlxLm) -> tuple[Any, Any]:
    """The model, whose weights are not read yet, and its tokenizer.

    Raises:
        UsageError: mlx-lm is missing here, or can't load it.
    """
    try:
        from mlx_lm.utils import load as load_model
    except ImportError as error:
        raise _missing(error) from None
    try:
        # Lazily: where memory is short a spare has no need of the weights until it is wanted.
        loaded = load_model(config.model, lazy=True)
    except Exception as error:  # mlx-lm and transformers raise what they like
        if (said := unloadable(config.model, error)) is None:
            raise
        raise said from None
    return loaded[0], loaded[1]


def _missing(error: ImportError) -> UsageError:
    return UsageError(f"mlx-lm is missing on this node ({error}): pip install 'elasticd[lm]'")


def check_model(config: MlxLm) -> None:
    """What is known not to be trainable is refused before anything is loaded.

    Raises:
        UsageError: the model is not here, or MLX has no gradient for what is wanted.
    """
    folder = config.model
    said = config_of(folder)
    quantization = quantization_of(folder, said)
    if said.get("quantize_activations"):
        raise UsageError(
            f"the model {folder} quantises its activations, and MLX can't train such layers: take"
            f" quantize_activations out of a copy of its {MODEL_CONFIG}"
        )
    if quantization is None:
        return
    if quantization.get("quant_method") == "bitnet":
        raise UsageError(
            f"the model {folder} is quantised as BitNet, and MLX has no gradient for its layers:"
            " take a model that is not"
        )
    tables = (quantization, *(v for v in quantization.values() if isinstance(v, dict)))
    bits = {bits for table in tables if isinstance(bits := table.get("bits"), int)}
    if config.fine_tune_type == "full":
        raise UsageError(
            f"the model {folder} is quantised, and MLX has no gradient for its weights:"
            ' fine_tune_type = "full" needs one that is not; "lora" trains this one'
        )
    if config.fine_tune_type == "dora" and (wrong := bits & _NO_DORA_BITS):
        raise UsageError(
            f"the model {folder} is quantised to {min(wrong)} bits, for which mlx-lm's DoRA does"
            ' not work; fine_tune_type = "lora" does'
        )


def check_gradient(model: Any, config: MlxLm, loss: Callable[..., Weighted]) -> None:
    """What MLX can't differentiate is refused, of a ``model`` that is ready to be trained. The
    graph of a gradient shows it: nothing is computed, and no weight is read. A few kinds of model
    (dbrx) compute something while the graph is built: of these the weights up to there are read.

    Raises:
        UsageError: naming the model, and what was to be trained of it.
    """
    tokens, trained = mx.zeros((1, 33), mx.int32), mx.ones((1, 32), mx.bool_)
    with undisturbed():
        try:
            value_and_grad(model, loss)(model, tokens, trained)
        except _UNFIT as error:
            raise _untrainable(model, config, error) from None


def _untrainable(model: Any, config: MlxLm, error: Exception) -> UsageError:
    kind = config.fine_tune_type
    quantised = any(hasattr(module, "bits") for module in model.modules())
    cure = '. It is quantised: "lora" trains such models' if quantised and kind != "lora" else ""
    wanted = f'fine_tune_type = "{kind}"'
    if kind != "full" and (keys := config.lora_parameters.keys):
        wanted += f" with lora_parameters.keys {', '.join(keys)}"
    text = str(error).rstrip(".")
    if not isinstance(error, (RuntimeError, ValueError)):
        text = f"{type(error).__name__}: {text}"
    cure += _without_adapter(model, error)
    return UsageError(f"{wanted} can't train the model {config.model}: {text}{cure}")


def _without_adapter(model: Any, error: Exception) -> str:
    """A sentence, if the model reads the weight of a layer in whose place an adapter is."""
    lacking = getattr(error, "obj", None)
    names = [name for name, module in model.named_modules() if module is lacking]
    if not names or getattr(error, "name", None) != "weight":
        return ""
    keys = sorted({_key_of(name) for name, module in model.named_modules() if _adapts(module)})
    others = ", ".join(key for key in keys if key.startswith("self_attn."))
    return (
        f". This kind of model reads the weight of {_key_of(names[0])}, in whose place is an"
        f" adapter: have lora_parameters.keys name only others{others and f', as {others}'}"
    )


def _adapts(module: Any) -> bool:
    return "lora_a" in module


def _key_of(name: str) -> str:
    """As ``lora_parameters.keys`` have it: the name in a layer."""
    return re.sub(r".*\blayers\.\d+\.", "", name)


def prepare(model: Any, config: MlxLm) -> None:
    """Freeze the model but for what is trained, and give it its adapters.

    Raises:
        UsageError: nothing would be trained, there are fewer layers, or what it begins with does
            not fit.
    """
    from mlx_lm.tuner.utils import linear_to_lora_layers

    model.freeze()
    if config.num_layers > len(model.layers):
        raise UsageError(
            f"num_layers = {config.num_layers}, and the model has {len(model.layers)}; -1: all"
        )
    if config.fine_tune_type == "full":
        for layer in model.layers[-max(config.num_layers, 0) :]:
            layer.unfreeze()
    else:
        wanted = dataclasses.asdict(config.lora_parameters)
        _check_keys(model, config)
        try:
            linear_to_lora_layers(
                model, config.num_layers, wanted, use_dora=config.fine_tune_type == "dora"
            )
        except _UNFIT as error:
            raise _untrainable(model, config, error) from None
    if config.resume_adapter_file is not None:
        resume(model, config, config.resume_adapter_file)
    if not flat(model.trainable_parameters()):
        raise UsageError("nothing is trained: lora_parameters.keys name no module of the layers")
    if config.grad_checkpoint:
        recompute.switch_on(model)
    model.train()


def _check_keys(model: Any, config: MlxLm) -> None:
    layers = model.layers[-max(config.num_layers, 0) :]
    in_layers = {name for layer in layers for name, _ in layer.named_modules() if name}
    everywhere = {name for name, _ in model.named_modules()}
    for key in config.lora_parameters.keys or ():
        if key not in in_layers and key not in everywhere:
            near = meant(key, sorted(in_layers), sorted(in_layers))
            raise UsageError(
                f"lora_parameters.keys: no module of the {len(layers)} layers that are trained is"
                f" called {show(key)}{near}"
            )


def base_of(model: Any, config: MlxLm) -> Base:
    """The frozen weights, which every node has in files, and the digests of these.

    Raises:
        UsageError: a file can't be read.
    """
    folder = Path(config.model)
    files = {
        file.name: file for file in (*folder.glob("model*.safetensors"), folder / "config.json")
    }
    if config.resume_adapter_file is not None:
        files["resume_adapter_file"] = Path(config.resume_adapter_file)
    try:
        return Base.of(model, files)
    except OSError as error:
        raise UsageError(f"{error.filename}: can't be read: {error.strerror}") from None


def warm_up(model: Any) -> None:
    """Read the weights now, so that a spare needn't when it is wanted; unless memory is short."""
    parameters = dict(flat(model.parameters()))
    size = sum(array.nbytes for array in parameters.values())
    if min(room_bytes(), machine_memory().available_bytes or 0) >= _WARM_SHARE * size:
        mx.eval(parameters)


def flat(tree: Any) -> list[tuple[str, mx.array]]:
    """The arrays of a tree by path."""
    found: Any = tree_flatten(tree)
    return list(found)
