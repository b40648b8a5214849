"""Frozen weights that nodes have in files of their own: no part of a state, but named in it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest
from mlx.utils import tree_flatten

from elasticd.checkpoints.codec import METADATA_KEY, model_digest, write_memory
from elasticd.errors import MismatchError, UsageError
from elasticd.settings.job import JobSpec
from elasticd.train.fingerprint import fingerprint
from elasticd.train.protocol.lending import Given
from elasticd.train.states.base import Base
from elasticd.train.states.exports import contents
from elasticd.train.states.state import Loaded, Snapshot, TrainingState
from elasticd.train.states.updates import Update
from elasticd.types import Lineage, Point, Stamp

POINT = Point(Lineage("l"), 3, Stamp("abc"))
FROZEN = ["layers.0.bias", "layers.0.weight"]
TRAINED = ["layers.1.bias", "layers.1.weight"]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return {"model.safetensors": tmp_path / "model.safetensors"}


def made(files: dict[str, Path], seed: int = 0) -> TrainingState:
    mx.random.seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model.layers[0].freeze()
    return TrainingState(model, optim.Adam(0.1), Base.of(model, files))


def stepped(state: TrainingState) -> Snapshot:
    gradients = {"layers": [{}, {"weight": mx.ones((2, 4)), "bias": mx.ones((2,))}]}
    state.update(gradients)
    return state.capture(POINT, 0, 8)


def through_files(snapshot: Snapshot) -> Loaded:
    return Loaded.from_files(snapshot.tensors, snapshot.metadata())


def test_a_state_holds_only_what_is_trained(files: dict[str, Path]) -> None:
    state = made(files)
    snapshot = stepped(state)
    assert [n for n in sorted(snapshot.tensors) if n.startswith("model/")] == [
        f"model/{path}" for path in TRAINED
    ]
    assert sorted(snapshot.parameters) == TRAINED
    assert snapshot.digest() == model_digest(state.parameters())
    assert json.loads(snapshot.metadata()[METADATA_KEY])["base"] == state.base.digest


def test_a_newcomer_is_given_as_many_bytes_as_are_trained(files: dict[str, Path]) -> None:
    """Whatever part of a state it asks for; with the optimizer's two moments, and their names."""
    model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 2))
    model.layers[0].freeze()
    frozen = sum(array.nbytes for _, array in flat(model.layers[0].parameters()))
    trained = sum(array.nbytes for _, array in flat(model.trainable_parameters()))
    state = TrainingState(model, optim.Adam(0.1), Base.of(model, files))
    state.update({"layers": [{}, {"weight": mx.ones((2, 512)), "bias": mx.ones((2,))}]})
    snapshot = state.capture(POINT, 0, 8)
    sent = 0
    for part in range(2):
        given: Given[Snapshot, Update] = Given(3, POINT.stamp, (), snapshot, part, 2)
        fd = write_memory(*contents(given))
        sent += os.fstat(fd).st_size
        os.close(fd)
    assert 3 * trained <= sent < 3 * trained + 8192 < frozen


def flat(tree: Any) -> list[tuple[str, mx.array]]:
    found: Any = tree_flatten(tree)
    return list(found)


def test_it_is_put_beside_the_same_weights(files: dict[str, Path]) -> None:
    one, other = made(files), made(files, seed=1)
    snapshot = stepped(one)
    before = other.model.layers[0].weight.tolist()
    other.install(through_files(snapshot))
    assert other.capture(POINT, 0, 8).digest() == snapshot.digest()
    assert other.model.layers[0].weight.tolist() == before


def test_other_files_are_another_base(files: dict[str, Path]) -> None:
    one = made(files)
    snapshot = stepped(one)
    files["model.safetensors"].write_bytes(b"others!")
    other = made(files)
    assert other.base.digest != one.base.digest
    with pytest.raises(MismatchError, match="other frozen weights"):
        other.install(through_files(snapshot))
    whole = TrainingState(other.model, optim.Adam(0.1))
    with pytest.raises(MismatchError, match=r"other frozen weights .*here \(none\)"):
        whole.install(through_files(snapshot))


def test_a_state_with_all_weights_does_not_fit(files: dict[str, Path]) -> None:
    one = made(files)
    whole = TrainingState(one.model, optim.Adam(0.1))
    with pytest.raises(MismatchError, match="digest none"):
        one.install(through_files(stepped(whole)))


def test_frozen_weights_can_not_be_trained_later(files: dict[str, Path]) -> None:
    state = made(files)
    stepped(state)
    state.model.layers[0].unfreeze()
    with pytest.raises(UsageError, match=r"layers\.0\.\w+ is of the frozen weights"):
        state.capture(POINT, 0, 8)


def test_members_compare_the_files(files: dict[str, Path]) -> None:
    class Source:
        def describe(self) -> str:
            return "data"

        def digests(self) -> dict[str, str]:
            return {}

    def said(state: TrainingState) -> dict[str, str]:
        batch = {"global": 1, "micro": 1}
        given = {"job": {"name": "a", "entrypoint": "a.py"}, "batch": batch, "train": {"steps": 1}}
        spec = JobSpec.from_dict(given)
        source: Any = Source()
        return fingerprint(spec, state, source, [mx.zeros((1,))], None)

    one = said(made(files))
    files["model.safetensors"].write_bytes(b"others!")
    other = said(made(files))
    assert {key for key in one if one[key] != other[key]} == {"base/model.safetensors"}


def test_weights_are_not_read_before_they_are_needed(
    files: dict[str, Path], tmp_path: Path
) -> None:
    """Lazy arrays of a file that has gone meanwhile can't be."""
    path = tmp_path / "lazy.safetensors"
    mx.save_safetensors(str(path), {"weight": mx.ones((4, 3))})
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    loaded: Any = mx.load(str(path))
    model.layers[0].weight = loaded["weight"]
    model.layers[0].freeze()
    path.write_bytes(path.read_bytes().replace(b"\x80\x3f", b"\x00\x40"))
    Base.of(model, files)
    assert model.layers[0].weight.tolist() == [[2.0] * 3] * 4
