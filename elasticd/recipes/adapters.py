"""Adapter files as mlx-lm reads them (``--adapter-path``, ``mlx_lm.fuse``)."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from elasticd.outputs import OWN_FOLDER
from elasticd.settings.job import JobSpec
from elasticd.settings.recipe import HUB, MlxLm

ADAPTERS = "adapters.safetensors"
BEST = "best_adapters.safetensors"
CONFIG = "adapter_config.json"
_BESIDE = "written-"
"""Begins the name of a file that is being written, in the library's own folder: nobody copies from
there, or says that it doesn't."""


class AdapterFolder:
    """Where a rank's adapters lie. Each rank writes its own, so that none is lost with main."""

    def __init__(self, output: Path, below: str, model: Any) -> None:
        """``below``: the folder's name in the job's ``output`` folder; "": that itself."""
        self._folder, self._model = output / below, model
        self._own = output / OWN_FOLDER
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
        os.replace(beside, self._folder / CONFIG)

    def write(self, *names: str) -> None:
        """Write all that is trained, under each of these names: whole, or not at all."""
        tensors: Any = tree_flatten(self._model.trainable_parameters())
        for name in names:
            beside = self._own / f"{_BESIDE}{name}"
            mx.save_safetensors(str(beside), dict(tensors))
            with beside.open("rb") as stream:
                os.fsync(stream.fileno())
            os.replace(beside, self._folder / name)


def numbered(step: int) -> str:
    """The name that mlx-lm gives the adapters of a step."""
    return f"{step:07d}_{ADAPTERS}"
