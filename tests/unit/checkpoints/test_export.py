"""Exports: plain safetensors whose tensors are those of the model, verified, whole or not there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from safetensors import safe_open

from elasticd.checkpoints import export
from elasticd.checkpoints.codec import METADATA_KEY, model_digest, write_shard
from elasticd.checkpoints.disk import Head, LocalDisk
from elasticd.checkpoints.sequential import Chunk
from elasticd.errors import DiskError, StateError, UsageError
from tests.nofile import SORTS, no_file

MODEL = {"a.weight": mx.arange(12.0).reshape(3, 4), "b": mx.array([1, 2], mx.bfloat16)}
HIDDEN = {"rope._freqs": mx.array([0.5])}
OPTIMIZER = {"step": mx.array(3, mx.uint64), "a.weight.m": mx.ones((3, 4))}


def shards(folder: Path, hidden: object = None) -> list[tuple[Path, str]]:
    said: dict[str, object] = {"user": {"optimizer": {"x": 1}}}
    if hidden is not None:
        said["hidden"] = hidden
    metadata = {METADATA_KEY: json.dumps(said)}
    state = {f"model/{name}": array for name, array in {**MODEL, **HIDDEN}.items()}
    state |= {f"optimizer/{name}": array for name, array in OPTIMIZER.items()}
    state["user/ema/w"] = mx.zeros((2,))
    names = sorted(state)
    found = []
    for number in range(3):
        path = folder / f"shard-{number}"
        tensors = {name: state[name] for name in names[number::3]}
        found.append((path, write_shard(path, tensors, metadata).digest))
    return found


def load(path: Path) -> tuple[dict[str, mx.array], dict[str, str]]:
    return cast(
        tuple[dict[str, mx.array], dict[str, str]], mx.load(str(path), return_metadata=True)
    )


def assert_same(found: Mapping[str, mx.array], wanted: Mapping[str, mx.array]) -> None:
    assert model_digest(found) == model_digest(wanted)


@pytest.mark.parametrize("hidden", [None, ["rope._freqs"]])
def test_one_file_has_the_parameters_alone(tmp_path: Path, hidden: object) -> None:
    out = tmp_path / "model.safetensors"
    copied: list[int] = []
    with export.CheckpointReader.open(shards(tmp_path, hidden)) as source:
        done = export.export(source, out, progress=copied.append)
        assert sum(copied) == source.model_bytes == done.bytes == 52
    found, metadata = load(out)
    assert_same(found, MODEL)
    assert metadata["format"] == "mlx"
    assert done.files == (out,)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


def test_a_model_loads_its_export(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    state = {
        f"model/{name}": a
        for name, a in cast(list[tuple[str, mx.array]], tree_flatten(model.parameters()))
    }
    mx.eval(state)
    metadata = {METADATA_KEY: json.dumps({"user": {}, "hidden": []})}
    path = tmp_path / "shard"
    digest = write_shard(path, state, metadata).digest
    with export.CheckpointReader.open([(path, digest)]) as source:
        export.export(source, tmp_path / "out.safetensors")
    nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)).load_weights(str(tmp_path / "out.safetensors"))


def test_the_optimizer_is_a_second_file(tmp_path: Path) -> None:
    with export.CheckpointReader.open(shards(tmp_path)) as source:
        done = export.export(source, tmp_path, optimizer=True)
    assert [path.name for path in done.files] == [
        "model.safetensors", "model.optimizer.safetensors"
    ]  # fmt: skip
    found, metadata = load(done.files[1])
    assert_same(found, OPTIMIZER)
    assert json.loads(metadata["elasticd"]) == {"x": 1}


def test_a_sharded_set_has_an_index(tmp_path: Path) -> None:
    out = tmp_path / "set"
    with export.CheckpointReader.open(shards(tmp_path)) as source:
        done = export.export(source, out, shard_bytes=48, optimizer=True)
    index = json.loads((out / export.INDEX_NAME).read_text())
    assert index["metadata"]["total_size"] == 52
    assert sorted(index["weight_map"]) == sorted(MODEL)
    merged: dict[str, mx.array] = {}
    for file in sorted(set(index["weight_map"].values())):
        merged |= load(out / file)[0]
    assert_same(merged, MODEL)
    assert {path.parent for path in done.files} == {out}
    assert_same(load(out / "optimizer.safetensors")[0], OPTIMIZER)
    with (
        export.CheckpointReader.open(shards(tmp_path)) as source,
        pytest.raises(UsageError, match="already"),
    ):
        export.export(source, out, shard_bytes=48)


def test_cuts() -> None:
    sizes = {"a": 4, "b": 4, "c": 9, "d": 1, "e": 2}
    assert export.cut(sizes, 8) == [["a", "b"], ["c"], ["d", "e"]]
    assert export.cut({}, 8) == []


def test_rot_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    files = shards(tmp_path)
    for path, _ in files:
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    out = tmp_path / "out.safetensors"
    before = sorted(tmp_path.iterdir())
    with (
        export.CheckpointReader.open(files) as source,
        pytest.raises(StateError, match="not what was"),
    ):
        export.export(source, out, optimizer=True)
    assert sorted(tmp_path.iterdir()) == before
    with (
        export.CheckpointReader.open(files) as source,
        pytest.raises(StateError, match="not what was"),
    ):
        export.export(source, tmp_path / "set", shard_bytes=10)
    assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(StateError, match="head"):
        export.CheckpointReader.open([(files[0][0], files[1][1])])


@pytest.mark.parametrize("sort", SORTS)
def test_what_is_no_file_stays(tmp_path: Path, sort: str) -> None:
    """Also what comes meanwhile, and the optimizer's file beside the one that was named."""
    with export.CheckpointReader.open(shards(tmp_path)) as source:
        with no_file(tmp_path / "x", sort) as unchanged:
            with pytest.raises(UsageError, match=SORTS[sort]):
                export.export(source, tmp_path / "x")
            assert unchanged()
        with no_file(tmp_path / "y.optimizer.safetensors", sort) as unchanged:
            with pytest.raises(UsageError, match=SORTS[sort]):
                export.export(source, tmp_path / "y", optimizer=True)
            assert unchanged() and not (tmp_path / "y").exists()


def test_a_file_that_has_come_meanwhile_is_not_replaced_unless_that_was_said(
    tmp_path: Path,
) -> None:
    (tmp_path / "secret").write_text("old")
    (tmp_path / "out").symlink_to(tmp_path / "secret")
    with (
        export.CheckpointReader.open(shards(tmp_path)) as source,
        pytest.raises(UsageError, match="is there already"),
    ):
        export.export(source, tmp_path / "out", overwrite=False)
    assert (tmp_path / "secret").read_text() == "old"


def test_a_link_to_a_file_stays_one(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    old = tmp_path / "disk" / "old"
    old.touch()
    (tmp_path / "x").symlink_to(old)
    with export.CheckpointReader.open(shards(tmp_path)) as source:
        assert export.export(source, tmp_path / "x").files == (tmp_path / "x",)
    assert (tmp_path / "x").is_symlink() and old.stat().st_size
    assert os.listdir(tmp_path / "disk") == ["old"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder that takes no files")
@pytest.mark.parametrize("shard_bytes", [None, 10])
def test_the_file_that_was_named_is_what_can_not_be_written(
    tmp_path: Path, shard_bytes: int | None
) -> None:
    with (
        export.CheckpointReader.open(shards(tmp_path)) as source,
        pytest.raises(DiskError, match=r"^/proc/self/x: "),
    ):
        export.export(source, Path("/proc/self/x"), shard_bytes=shard_bytes)


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    with export.CheckpointReader.open(shards(tmp_path)) as source:
        with pytest.raises(UsageError, match="no such folder"):
            export.export(source, tmp_path / "not" / "there.safetensors")
        with pytest.raises(UsageError, match="no such folder"):
            export.export(source, tmp_path / "not" / "there", shard_bytes=10)


class Spoiling(LocalDisk):
    """Loses bytes of a file's head, and says nothing."""

    def __init__(self, old: bytes, new: bytes) -> None:
        super().__init__()
        self.old, self.new = old, new

    def write(self, path: Path, chunks: Iterable[Chunk], head: Head | None = None) -> None:
        super().write(path, chunks, head)
        path.write_bytes(path.read_bytes().replace(self.old, self.new))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'"BF16"', b'"BFF6"', "can't read it"),
        (b'{"', b'["', "can't read it"),
        (b"[3,4]", b"[4,3]", "reads something else"),
        (b'"format"', b'"farmot"', "reads something else"),
    ],
)
def test_a_file_that_the_library_reads_otherwise_does_not_appear(
    tmp_path: Path, old: bytes, new: bytes, said: str
) -> None:
    out = tmp_path / "model.safetensors"
    out.write_bytes(b"before")
    with (
        export.CheckpointReader.open(shards(tmp_path)) as source,
        pytest.raises(StateError, match=f"model.safetensors: the safetensors library {said}"),
    ):
        export.export(source, out, disk=Spoiling(old, new))
    assert out.read_bytes() == b"before"
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


def test_the_library_reads_an_export(tmp_path: Path) -> None:
    with export.CheckpointReader.open(shards(tmp_path)) as source:
        export.export(source, tmp_path / "out.safetensors")
    with safe_open(tmp_path / "out.safetensors", "numpy") as file:
        np.testing.assert_array_equal(file.get_tensor("a.weight"), np.array(MODEL["a.weight"]))
        assert file.get_slice("b").get_dtype() == "BF16"
