"""Adapter files as mlx-lm reads them (``--adapter-path``, ``mlx_lm.fuse``)."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from elasticd.checkpoints.medium import order_file
from elasticd.outputs import OWN_FOLDER
from elasticd.settings.job import JobSpec
from elasticd.settings.recipe import HUB, MlxLm

ADAPTERS = "adapters.safetensors"
BEST = "best_adapters.safetensors"
CONFIG = "adapter_config.json"
_STEP, _LOSS = "step", "validation_loss"
"""In the head of a file."""
_KIND, _SCALE = "fine_tune_type", "scale"
"""There, too: what the same weights mean something else with."""
_BESIDE = "written-"
"""Begins the name of a file that is being written, in the library's own folder: nobody copies from
there, or says that it doesn't."""


@dataclasses.dataclass(frozen=True, slots=True)
class Meaning:
    """What adapters mean beside their weights; None: that is not known, or they have none."""

    kind: str | None
    """``fine_tune_type``"""
    scale: float | None

    @classmethod
    def of(cls, config: MlxLm) -> Meaning:
        """That of what a job with this ``config`` trains."""
        full = config.fine_tune_type == "full"
        return cls(config.fine_tune_type, None if full else config.lora_parameters.scale)

    @classmethod
    def told(cls, file: Path, head: Mapping[str, str]) -> Meaning:
        """What is said of a ``file``: by its ``head``, or else by mlx-lm's file beside it."""
        if _KIND in head:
            return cls(head[_KIND], _number(head.get(_SCALE)))
        said: Any = None
        with contextlib.suppress(OSError, ValueError):
            said = json.loads((file.parent / CONFIG).read_text(encoding="utf-8"))
        if not isinstance(said, dict):
            return cls(None, None)
        kind, lora = said.get(_KIND), said.get("lora_parameters")
        scale = _number(lora.get(_SCALE)) if isinstance(lora, dict) else None
        return cls(kind if isinstance(kind, str) else None, scale)


class AdapterFolder:
    """Where a rank's adapters lie. Each rank writes its own, so that none is lost with main."""

    def __init__(self, output: Path, below: str, model: Any, meaning: Meaning) -> None:
        """``below``: the folder's name in the job's ``output`` folder; "": that itself."""
        self._folder, self._model = output / below, model
        self._meaning = meaning
        self._own = output / OWN_FOLDER
        self._best: float | None = None
        """Of the best adapters that are here, if that is known: their validation loss."""
        for folder in (self._folder, self._own):
            folder.mkdir(parents=True, exist_ok=True)

    def write_config(self, spec: JobSpec, config: MlxLm) -> None:
        """What mlx-lm must know to give a model these layers."""
        said = {**dataclasses.asdict(config), "iters": spec.train.steps, "seed": spec.train.seed}
        said |= {"batch_size": spec.batch.global_, "model": config.model.removeprefix(HUB)}
        if config.fine_tune_type == "full":
            said["lora_parameters"] = None
        elif config.lora_parameters.keys is None:
            del said["lora_parameters"]["keys"]
        beside = self._own / f"{_BESIDE}{CONFIG}"
        beside.write_text(json.dumps(said, indent=4, sort_keys=True) + "\n", encoding="utf-8")
        self._name(beside, CONFIG)

    def write(self, *names: str, step: int | None = None, loss: float | None = None) -> None:
        """Write all that is trained, under each of these names: whole, or not at all. With its
        ``step`` and the validation ``loss`` there, if that was measured."""
        tensors: Any = tree_flatten(self._model.trainable_parameters())
        meaning = self._meaning
        told = {_STEP: step, _LOSS: loss, _KIND: meaning.kind, _SCALE: meaning.scale}
        said = {name: str(value) for name, value in told.items() if value is not None}
        for name in names:
            beside = self._own / f"{_BESIDE}{name}"
            mx.save_safetensors(str(beside), dict(tensors), said)
            self._name(beside, name)

    def write_best(self, step: int, loss: float) -> None:
        """What is trained has the lowest validation loss so far."""
        self.write(BEST, step=step, loss=loss)
        self._best = loss

    def has_best(self, loss: float, upto: int) -> bool:
        """Whether the best adapters are those of that validation loss, which is the lowest of the
        steps up to ``upto``. Who was away then has older ones: they make room for main's, unless
        the right ones are here under their number."""
        if self._best == loss:
            return True
        path = self._folder / BEST
        if path.exists():
            step, have = _said(path)
            if have is None or (step or 0) > upto:
                return True  # an earlier version's; or the job went back, and comes there again
            if have == loss:
                self._best = loss
                return True
        for other in sorted(self._folder.glob(f"*_{ADAPTERS}")):
            if _said(other)[1] == loss:
                beside = self._own / f"{_BESIDE}{BEST}"
                shutil.copyfile(other, beside)
                self._name(beside, BEST)
                self._best = loss
                return True
        path.unlink(missing_ok=True)
        return False

    def _name(self, beside: Path, name: str) -> None:
        """Whatever breaks meanwhile, the name stands for the old file or for the new one, whole."""
        with beside.open("rb") as stream:
            order_file(stream.fileno())
        os.replace(beside, self._folder / name)


def numbered(step: int) -> str:
    """The name that mlx-lm gives the adapters of a step."""
    return f"{step:07d}_{ADAPTERS}"


def _number(value: Any) -> float | None:
    with contextlib.suppress(TypeError, ValueError):
        return float(value)
    return None


def _said(path: Path) -> tuple[int | None, float | None]:
    """The step and the validation loss that a file tells of; None: not that."""
    with contextlib.suppress(RuntimeError, ValueError, OSError):
        loaded: Any = mx.load(str(path), return_metadata=True)  # reads the head alone
        said = loaded[1]
        step, loss = said.get(_STEP), said.get(_LOSS)
        return None if step is None else int(step), None if loss is None else float(loss)
    return None, None
