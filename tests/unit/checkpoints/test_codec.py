"""States to safetensors files and back, bit for bit, and what is said of unusable files."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import mmap
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import numpy as np
import psutil
import pytest
from mlx.utils import tree_flatten
from safetensors.numpy import load_file

from elasticd.checkpoints.codec import (
    METADATA_KEY,
    model_check,
    model_digest,
    read_tensors,
    write_memory,
    write_shard,
)
from elasticd.checkpoints.integrity import KEY, Difference, Verifier
from elasticd.errors import RotError, StateError

METADATA = {METADATA_KEY: json.dumps({"step": 3})}


def _some(dtype: mx.Dtype) -> mx.array:
    return mx.array([[0, 1, 2], [3, 100, 5]]).astype(dtype)


def _every_kind() -> dict[str, mx.array]:
    dtypes = [
        *(mx.bool_, mx.uint8, mx.uint16, mx.uint32, mx.uint64, mx.int8, mx.int16, mx.int32),
        *(mx.int64, mx.float16, mx.bfloat16, mx.float32, mx.float64, mx.complex64),
    ]
    tensors = {str(dtype): _some(dtype) for dtype in dtypes}
    tensors |= {
        "scalar": mx.array(2.5, mx.bfloat16),
        "empty": mx.zeros((0, 4)),
        "turned": mx.arange(12).reshape(3, 4).T,
        "turned bf16": mx.arange(12).astype(mx.bfloat16).reshape(3, 4).T,
        "repeated": mx.broadcast_to(mx.array(7.0), (2, 3)),
        "strided": mx.arange(20)[3:17:2],
        "nan": mx.array([float("nan"), float("inf"), -0.0], mx.float16),
        'ünï"code': mx.array([1]),
    }
    mx.eval(tensors)
    return tensors


def _same(one: mx.array, other: mx.array) -> bool:
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and model_digest({"": one}) == model_digest({"": other})
    )


def _assert_same(found: Mapping[str, mx.array], wanted: Mapping[str, mx.array]) -> None:
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        assert _same(found[name], array), name


def _checked(content: bytes, digest: str, pieces: int = 7) -> Difference | None:
    check = Verifier(digest)
    size = max(1, len(content) // pieces)
    for start in range(0, len(content), size):
        check.update(content[start : start + size])
    return check.finish()


def test_every_dtype_and_layout_comes_back_bit_for_bit(tmp_path: Path) -> None:
    tensors = _every_kind()
    path = tmp_path / "shard.safetensors"
    file = write_shard(path, tensors, METADATA)
    content = path.read_bytes()
    assert file.bytes == len(content)
    assert _checked(content, file.digest) is None
    found, metadata = read_tensors([path])
    _assert_same(found, tensors)
    assert metadata == METADATA
    assert os.listdir(tmp_path) == ["shard.safetensors"]


def test_a_nameless_file_holds_the_same_state(tmp_path: Path) -> None:
    tensors = _every_kind()
    path = tmp_path / "shard.safetensors"
    write_shard(path, tensors, METADATA)
    fd = write_memory(tensors, METADATA)
    try:
        assert os.lseek(fd, 0, os.SEEK_CUR) == 0
        _assert_same(read_tensors([path])[0], tensors)
        os.lseek(fd, 5, os.SEEK_SET)
        _assert_same(read_tensors([fd])[0], tensors)
        assert os.lseek(fd, 0, os.SEEK_CUR) == 5
    finally:
        os.close(fd)


def test_a_mac_lends_a_state_as_memory_that_is_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """XNU's is neither read nor written but by mapping, and of whole pages."""

    def refuses(*arguments: object) -> int:
        raise OSError(errno.ESPIPE, os.strerror(errno.ESPIPE))

    tensors = _every_kind()
    for name in ("write", "lseek", "pread", "preadv"):
        monkeypatch.setattr(os, name, refuses)
    fd = write_memory(tensors, METADATA, "darwin")
    try:
        state = os.fstat(fd)
        assert state.st_nlink == 0 and state.st_size % mmap.PAGESIZE == 0
        found, metadata = read_tensors([fd])
        _assert_same(found, tensors)
        assert metadata == METADATA
    finally:
        os.close(fd)


def test_other_readers_read_our_files(tmp_path: Path) -> None:
    tensors = _every_kind()
    path = tmp_path / "shard.safetensors"
    write_shard(path, tensors, METADATA)
    by_numpy = {name: array for name, array in tensors.items() if array.dtype != mx.bfloat16}
    write_shard(tmp_path / "numpy.safetensors", by_numpy, METADATA)
    for name, array in load_file(tmp_path / "numpy.safetensors").items():
        np.testing.assert_array_equal(array, np.array(by_numpy[name]), err_msg=name)
    by_mlx = {name: array for name, array in tensors.items() if array.dtype != mx.float64}
    write_shard(tmp_path / "mlx.safetensors", by_mlx, METADATA)
    loaded, metadata = cast(
        tuple[dict[str, mx.array], dict[str, str]],
        mx.load(str(tmp_path / "mlx.safetensors"), return_metadata=True),
    )
    _assert_same(loaded, by_mlx)
    assert metadata[METADATA_KEY] == METADATA[METADATA_KEY]


def test_reads_files_written_by_mlx(tmp_path: Path) -> None:
    tensors = _every_kind()
    del tensors[str(mx.float64)]
    path = tmp_path / "mlx.safetensors"
    mx.save_safetensors(str(path), tensors, {"format": "mlx"})
    found, metadata = read_tensors([path])
    _assert_same(found, tensors)
    assert metadata == {"format": "mlx"}


def test_larger_than_a_slice_and_written_by_another_thread(tmp_path: Path) -> None:
    tensors = {"a": mx.random.normal((3 << 20,)), "b": mx.random.normal((1000, 999)).T}
    mx.eval(tensors)
    path = tmp_path / "shard.safetensors"
    thread = threading.Thread(target=write_shard, args=(path, tensors, METADATA))
    thread.start()
    thread.join(30)
    _assert_same(read_tensors([path])[0], tensors)


def test_merges_shards_of_one_state_only(tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    write_shard(one, {"a": mx.array([1])}, METADATA)
    write_shard(two, {"b": mx.array([2])}, METADATA)
    write_shard(three, {}, METADATA)
    tensors, metadata = read_tensors([one, two, three])
    _assert_same(tensors, {"a": mx.array([1]), "b": mx.array([2])})
    assert metadata == METADATA
    with pytest.raises(StateError, match=r"one: tensor 'a' is in an earlier file"):
        read_tensors([one, two, one])
    write_shard(two, {"b": mx.array([2])}, {METADATA_KEY: "another"})
    with pytest.raises(StateError, match="two: belongs to another state"):
        read_tensors([one, two])
    assert read_tensors([]) == ({}, {})


def test_parts_of_one_state_may_come_from_two_lineages(tmp_path: Path) -> None:
    """One of those that give them has entered the next world already, the other has not yet."""

    def part(name: str, **changes: Any) -> int:
        said = {"step": 84, "stamp": "s", "lineage": "old", "user": {"x": math.nan}} | changes
        metadata = {METADATA_KEY: json.dumps(said, sort_keys=True)}
        return write_memory({name: mx.array([1])}, metadata)

    parts = [part("a"), part("b", lineage="new"), part("c", stamp="t", step=85)]
    tensors, metadata = read_tensors(parts[:2])
    assert sorted(tensors) == ["a", "b"] and json.loads(metadata[METADATA_KEY])["lineage"] == "old"
    with pytest.raises(StateError) as refused:
        read_tensors(parts)
    assert str(refused.value) == (
        "part 3 of 3 of a state: belongs to another state than the files before it: 'stamp'"
        " differs, 'step' differs"
    )
    for fd in parts:
        os.close(fd)


def test_every_truncation_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "shard.safetensors"
    write_shard(path, {"first": mx.array([1, 2]), "last": mx.array([3, 4])}, METADATA)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(StateError, match=r"shard\.safetensors"):
            read_tensors([path])
    path.write_bytes(content[:-1])
    with pytest.raises(StateError, match="tensor 'last' ends past the end"):
        read_tensors([path])
    path.write_bytes(content + b"x")
    with pytest.raises(StateError, match="1 bytes follow"):
        read_tensors([path])


def test_missing_file_and_refused_write_name_the_path(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="nothing-here"):
        read_tensors([tmp_path / "nothing-here"])
    (tmp_path / "a-file").touch()
    with pytest.raises(StateError, match="a-file"):
        write_shard(tmp_path / "a-file" / "shard", {}, {})
    write_shard(tmp_path / "new" / "folder" / "shard", {}, {}, root=tmp_path)
    assert read_tensors([tmp_path / "new" / "folder" / "shard"]) == ({}, {})


def test_model_digest_is_that_of_the_interface() -> None:
    model = {
        "b": {"weight": mx.array([[1.0, 2.0]])},
        "a.x": mx.array(3, mx.int32),
        "é": mx.array([]),
    }
    wanted = hashlib.blake2b(digest_size=32)
    flat = dict(cast(list[tuple[str, mx.array]], tree_flatten(model)))
    for path in sorted(flat, key=lambda path: path.encode()):
        array = flat[path]
        dtype = str(array.dtype).removeprefix("mlx.core.")
        wanted.update(f"{path}\0{dtype}\0{','.join(map(str, array.shape))}\0".encode())
        wanted.update(np.array(array).tobytes())
    assert model_digest(flat) == wanted.hexdigest()


def test_model_digest_sees_layout_dtype_and_path() -> None:
    values = mx.arange(6, dtype=mx.int16).reshape(2, 3)
    digests = {
        model_digest({"w": values}),
        model_digest({"w": values.T}),
        model_digest({"w": values.reshape(6)}),
        model_digest({"w": values.view(mx.uint16)}),
        model_digest({"v": values}),
        model_digest({}),
    }
    assert len(digests) == 6
    assert model_digest({"w": values.T}) == model_digest({"w": mx.array(np.array(values).T.copy())})
    half = values.astype(mx.bfloat16)
    wanted = hashlib.blake2b(b"w\0bfloat16\0" + b"2,3\0", digest_size=32)
    wanted.update(np.array(half.view(mx.uint16)).tobytes())
    assert model_digest({"w": half}) == wanted.hexdigest()


@pytest.mark.parametrize("pieces", [1, 3, 40, 10_000])
def test_each_flipped_bit_is_found_and_its_tensor_named(tmp_path: Path, pieces: int) -> None:
    path = tmp_path / "shard.safetensors"
    tensors = {"b": mx.array([1.5, 2.5]), "empty": mx.zeros((0,)), "c": mx.array([3], mx.int8)}
    file = write_shard(path, tensors, METADATA)
    content = path.read_bytes()
    assert set(file.tensors) == set(tensors)
    assert _checked(content, file.digest, pieces) is None
    head = 8 + int.from_bytes(content[:8], "little")
    for at in range(len(content)):
        spoilt = bytearray(content)
        spoilt[at] ^= 1 << at % 8
        finding = _checked(bytes(spoilt), file.digest, pieces)
        assert finding is not None
        data = at - head
        assert finding.tensor == (None if data < 0 else "b" if data < 8 else "c")
    for length in (0, 5, head - 1, head, len(content) - 1):
        assert _checked(content[:length], file.digest, pieces) is not None
    assert _checked(content + b"x", file.digest, pieces) is not None


def test_files_of_the_first_versions_still_verify(tmp_path: Path) -> None:
    content = b"any bytes at all" * 100
    digest = hashlib.blake2b(content, digest_size=32).hexdigest()
    assert _checked(content, digest) is None
    finding = _checked(content[:-1], digest)
    assert finding is not None and digest in finding.reason


def test_digests_of_tensors_depend_on_their_bytes_alone(tmp_path: Path) -> None:
    same = mx.array([1.0, 2.0, 3.0])
    one = write_shard(tmp_path / "one", {"w": same, "v": mx.array([1])}, METADATA)
    two = write_shard(tmp_path / "two", {"w": same, "v": mx.array([2])}, METADATA)
    assert one.tensors["w"] == two.tensors["w"]
    assert one.tensors["v"] != two.tensors["v"]
    assert one.digest != two.digest
    assert KEY not in read_tensors([tmp_path / "one"])[1]


def test_digests_are_checked_while_a_state_is_read(tmp_path: Path) -> None:
    tensors = {"a": mx.arange(3_000_000), "b": mx.ones((7,), mx.bfloat16), "c": mx.zeros((0,))}
    path = tmp_path / "shard"
    digest = write_shard(path, tensors, {}).digest
    _assert_same(read_tensors([path], [digest])[0], tensors)
    content = bytearray(path.read_bytes())
    old = hashlib.blake2b(content, digest_size=32).hexdigest()
    _assert_same(read_tensors([path], [old])[0], tensors)

    for place, named in ((-1, "tensor 'b' is not what was written"), (9, "its head is not what")):
        spoilt = bytearray(content)
        spoilt[place] ^= 1
        path.write_bytes(spoilt)
        with pytest.raises(RotError, match=named):
            read_tensors([path], [digest])
        with pytest.raises(RotError, match="its digest is"):
            read_tensors([path], [old])


@pytest.mark.parametrize(
    "other",
    [
        {"w": mx.array([1.0, 2.0, 3.5])},
        {"v": mx.array([1.0, 2.0, 3.0])},
        {"w": mx.array([[1.0, 2.0, 3.0]])},
        {"w": mx.array([1.0, 2.0, 3.0]).view(mx.uint32)},
        {"w": mx.array([1.0, 2.0, 3.0]), "x": mx.array([])},
    ],
)
def test_a_check_tells_models_apart_where_the_digest_does(other: dict[str, mx.array]) -> None:
    model = {"w": mx.array([1.0, 2.0, 3.0])}
    assert model_digest(model) != model_digest(other)
    assert model_check(model, {}) != model_check(other, {})


def test_a_state_that_is_read_again_leaves_no_more_threads(tmp_path: Path) -> None:
    """MLX has one for each thread that ever used it, and so each restore of a trainer left some."""
    path = tmp_path / "shard"
    write_shard(path, {str(number): mx.arange(number + 1) for number in range(64)}, {})
    read_tensors([path])
    at_first = psutil.Process().num_threads()
    for _ in range(8):
        read_tensors([path])
    assert psutil.Process().num_threads() <= at_first + 6  # readers that the first had no work for
