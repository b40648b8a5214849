"""Plain safetensors as the start of a job.

Read by our own reader: of the safetensors library ``safe_open`` gives MLX no bfloat16 (0.8), the
type that most models have.
"""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx

from elasticd.checkpoints.codec import read_tensors
from elasticd.checkpoints.export import FILE_NAME, INDEX_NAME
from elasticd.errors import StateError


def read_parameters(path: Path) -> dict[str, mx.array]:
    """Parameters by name, from a file or from a folder with ``model.safetensors`` or an index.

    Files written by MLX, mlx-lm, ``checkpoints export`` and the safetensors library are read.

    Raises:
        StateError: naming the file: not there, or not readable.
    """
    if not path.is_dir():
        return read_tensors([path])[0]
    index = path / INDEX_NAME
    if not index.exists():
        return read_tensors([path / FILE_NAME])[0]
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        # A name of an index that leads elsewhere is no name of a file.
        files = [path / Path(str(name)).name for name in names]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(f"{index}: is no index: {error!r}") from None
    tensors: dict[str, mx.array] = {}
    for file in files:
        tensors |= read_tensors([file])[0]
    return tensors
