"""Our reader and writer of safetensors against the library's: each reads what the other wrote."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from safetensors import TensorSpec, deserialize, safe_open, serialize_file

from elasticd.checkpoints.codec import METADATA_KEY, read_tensors, write_memory, write_shard

DTYPES = (
    *(mx.bool_, mx.uint8, mx.uint16, mx.uint32, mx.uint64, mx.int8, mx.int16, mx.int32),
    *(mx.int64, mx.float16, mx.bfloat16, mx.float32, mx.float64, mx.complex64),
)
SHAPES = ((2, 3), (), (0, 4), (7,))
METADATA = {METADATA_KEY: "{}", "ünï": "code"}


def tensors_of(dtype: mx.Dtype) -> dict[str, mx.array]:
    """One of each shape, and one that does not lie in its rows' order."""
    found = {}
    for shape in SHAPES:
        count = int(np.prod(shape))
        whole = mx.arange(1, count + 1).reshape(shape)
        found[f"of {shape}"] = whole.astype(dtype, stream=mx.cpu)
    found["turned"] = mx.arange(6).reshape(2, 3).astype(dtype, stream=mx.cpu).T
    mx.eval(found)
    return found


def bytes_of(array: mx.array) -> bytes:
    """Little-endian, row by row, by numpy, which knows no bfloat16."""
    flat = mx.contiguous(array, stream=mx.cpu)
    if array.dtype == mx.bfloat16:
        flat = flat.view(mx.uint16, stream=mx.cpu)
    return np.array(flat).tobytes()


def name_of(dtype: mx.Dtype) -> str:
    """As the library calls it."""
    return str(dtype).rpartition(".")[2].removesuffix("_")


@pytest.mark.parametrize("nameless", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_the_library_reads_what_we_write(tmp_path: Path, dtype: mx.Dtype, nameless: bool) -> None:
    tensors, path = tensors_of(dtype), tmp_path / "ours.safetensors"
    if nameless:
        with open(write_memory(tensors, METADATA), "rb") as file:
            path.write_bytes(file.read())
    else:
        write_shard(path, tensors, METADATA)
    with safe_open(path, "numpy") as opened:
        names = opened.keys()
        slices = {name: opened.get_slice(name) for name in names}
        shapes = {name: tuple(each.get_shape()) for name, each in slices.items()}
        assert opened.metadata().items() >= METADATA.items()
    assert shapes == {name: tuple(array.shape) for name, array in tensors.items()}
    read = {name: bytes(told["data"]) for name, told in deserialize(path.read_bytes())}
    assert read == {name: bytes_of(array) for name, array in tensors.items()}
    spec = TensorSpec(dtype=name_of(dtype), shape=[1], data_ptr=1, data_len=dtype.size)
    assert {each.get_dtype() for each in slices.values()} == {spec.dtype}


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_we_read_what_the_library_writes(tmp_path: Path, dtype: mx.Dtype) -> None:
    tensors, path = tensors_of(dtype), tmp_path / "theirs.safetensors"
    held = {name: np.frombuffer(bytes_of(a) or b"\0", np.uint8) for name, a in tensors.items()}
    specs = {
        name: TensorSpec(
            dtype=name_of(dtype),
            shape=list(array.shape),
            data_ptr=held[name].ctypes.data,
            data_len=array.nbytes,
        )
        for name, array in tensors.items()
    }
    serialize_file(specs, path, METADATA)
    found, metadata = read_tensors([path])
    assert metadata == METADATA
    assert found.keys() == tensors.keys()
    for name, array in tensors.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert bytes_of(found[name]) == bytes_of(array)
