"""Which file of a model's folder is the cause, where it can't be loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from elasticd.errors import UsageError
from elasticd.settings.recipe import MODEL_CONFIG, without_config

_TOKENIZER = "tokenizer.json"
_QUANTIZATION = "hf_quant_config.json"
_JSON = (MODEL_CONFIG, _TOKENIZER, "tokenizer_config.json", "special_tokens_map.json",
         "added_tokens.json", "generation_config.json", _QUANTIZATION)  # fmt: skip
_VOCABULARIES = (
    "tokenizer.json", "tokenizer.model", "vocab.*", "*.tiktoken", "spiece.model", "tekken.json",
    "sentencepiece.bpe.model",
)  # fmt: skip
_LACKS = ("Missing ", "No safetensors")
"""How mlx-lm begins to say that weights aren't there."""


def config_of(folder: str) -> dict[str, Any]:
    """What config.json says.

    Raises:
        UsageError: there is none here, or it can't be read.
    """
    path = Path(folder)
    if not path.is_dir():
        raise UsageError(f"the model folder {folder} is not on this node")
    if not (path / MODEL_CONFIG).is_file():
        raise UsageError(without_config(path, folder))
    if reason := _no_object(path / MODEL_CONFIG):
        raise _again(folder, f"{MODEL_CONFIG}: {reason}")
    said: dict[str, Any] = json.loads((path / MODEL_CONFIG).read_bytes())
    return said


def quantization_of(folder: str, said: Mapping[str, Any]) -> dict[str, Any] | None:
    """What mlx-lm goes by where it leaves weights quantised, of a model whose config.json has
    ``said`` that; None: they are not.

    Raises:
        UsageError: a file can't be read.
    """
    if isinstance(own := said.get("quantization"), dict):
        return own
    found = _foreign(Path(folder), said)
    return found if isinstance(found, dict) and not _is_dequantised(found) else None


def _foreign(folder: Path, said: Mapping[str, Any]) -> object:
    """What others than mlx-lm write of that, in the first place that has it."""
    for table in (said, said.get("text_config")):
        if isinstance(table, Mapping) and "quantization_config" in table:
            return table["quantization_config"]
    path = folder / _QUANTIZATION
    if not path.exists():
        return None
    if reason := _no_object(path):
        raise _again(str(folder), f"{_QUANTIZATION}: {reason}")
    return json.loads(path.read_bytes())


def _is_dequantised(found: Mapping[str, Any]) -> bool:
    """Of fp8 mlx-lm leaves one kind as it is, which MLX has."""
    kept = found.get("scale_fmt") == "ue8m0" and found.get("weight_block_size") == [32, 32]
    return found.get("quant_method") == "fp8" and not kept


def unloadable(folder: str, error: Exception) -> UsageError | None:
    """What to say of an ``error`` of mlx-lm's; None: no file is the cause."""
    if isinstance(error, MemoryError):
        return None
    said = next(_broken(Path(folder), str(error)), None)
    if said is not None:
        return _again(folder, said)
    if isinstance(error, RuntimeError):
        return None  # of the machine, of its memory say
    text = next(iter(str(error).splitlines()), "").strip()
    name = "" if isinstance(error, OSError | ValueError) and text else f"{type(error).__name__}: "
    return UsageError(f"the model {folder} can't be loaded: {name}{text}")


def _again(folder: str, said: str) -> UsageError:
    return UsageError(f"the model {folder} can't be loaded: {said}; fetch or copy it again")


def _broken(folder: Path, error: str) -> Iterator[str]:
    weights = sorted(folder.glob("model*.safetensors"))
    for path in weights:
        if reason := _unreadable(path) or _cut_off(path):
            yield f"{path.name}: {reason}"
    for path in (*(folder / name for name in _JSON), *sorted(folder.glob("[!.]*.index.json"))):
        if path.exists() and (reason := _no_object(path)):
            yield f"{path.name}: {reason}"
    if error.startswith(_LACKS):
        for path in sorted(folder.glob("[!.]*.index.json")):
            for name in _named(path):
                if not (folder / name).exists():
                    yield f"{name}: is not there, and {path.name} names it"
        if not weights:
            yield "model.safetensors: is not there"
    if not any(path for name in _VOCABULARIES for path in folder.glob(name)):
        yield f"{_TOKENIZER}: is not there"
    if (folder / _TOKENIZER).exists() and (reason := _no_tokenizer(folder / _TOKENIZER)):
        yield f"{_TOKENIZER}: {reason}"
    if "model_type" not in json.loads((folder / MODEL_CONFIG).read_bytes()):
        yield f"{MODEL_CONFIG}: has no model_type"


def _unreadable(path: Path) -> str:
    try:
        with path.open("rb"):
            return ""
    except OSError as error:
        return f"can't be read: {error.strerror or error}"


def _cut_off(path: Path) -> str:
    try:
        mx.load(str(path))
    except Exception as error:
        reason = str(error).partition("] ")[2].partition(". ")[0] or str(error)
        return f"is cut off or damaged ({reason.rstrip('.')})"
    return ""


def _no_object(path: Path) -> str:
    if reason := _unreadable(path):
        return reason
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        return f"is no JSON: {error}"
    return "" if isinstance(found, dict) else "is no JSON object"


def _no_tokenizer(path: Path) -> str:
    from tokenizers import Tokenizer

    try:
        Tokenizer.from_file(str(path))
    except Exception as error:
        return f"is no tokenizer: {next(iter(str(error).splitlines()), '')}"
    return ""


def _named(index: Path) -> list[str]:
    files = json.loads(index.read_bytes()).get("weight_map")
    return sorted({str(name) for name in files.values()}) if isinstance(files, dict) else []
