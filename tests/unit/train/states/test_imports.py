"""Plain safetensors as the start of a job: files, sharded sets, and what doesn't fit."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest

from elasticd.checkpoints.codec import model_digest
from elasticd.errors import MismatchError, StateError
from elasticd.train.states.imports import read_parameters
from elasticd.train.states.state import TrainingState
from elasticd.train.states.trees import arrays


def model() -> nn.Module:
    made = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    mx.eval(made.parameters())
    return made


def digest(one: nn.Module) -> str:
    parameters = arrays(one.parameters())
    mx.eval(parameters)
    return model_digest(parameters)


def test_a_file_of_mlx_is_the_start(tmp_path: Path) -> None:
    saved, fresh = model(), model()
    assert digest(saved) != digest(fresh)
    saved.save_weights(str(tmp_path / "weights.safetensors"))
    TrainingState(fresh, None).load_parameters(
        read_parameters(tmp_path / "weights.safetensors"), "weights"
    )
    assert digest(fresh) == digest(saved)


def test_a_folder_with_an_index_is_one_state(tmp_path: Path) -> None:
    saved, fresh = model(), model()
    where = {}
    for name, array in arrays(saved.parameters()).items():
        mx.save_safetensors(str(tmp_path / f"{name}.part"), {name: array})
        where[name] = f"{name}.part.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    TrainingState(fresh, None).load_parameters(read_parameters(tmp_path), "set")
    assert digest(fresh) == digest(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers.0.weight": mx.zeros((4, 5))}, r"'layers.0.weight' is float32\[4,3\] here"),
        ({"layers.1.bias": mx.zeros((2,), mx.bfloat16)}, r"bfloat16\[2\] in the state"),
        ({"layers.9.bias": mx.zeros((2,))}, "'layers.9.bias' is absent here"),
    ],
)
def test_another_model_is_refused_by_its_first_difference(
    tmp_path: Path, change: dict[str, mx.array], message: str
) -> None:
    fresh = model()
    before = digest(fresh)
    given = {**arrays(fresh.parameters()), **change}
    mx.save_safetensors(str(tmp_path / "other.safetensors"), given)
    with pytest.raises(MismatchError, match=message):
        TrainingState(fresh, None).load_parameters(
            read_parameters(tmp_path / "other.safetensors"), "other"
        )
    assert digest(fresh) == before


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="nothing"):
        read_parameters(tmp_path / "nothing")
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(StateError, match="is no index"):
        read_parameters(tmp_path)
