"""States as safetensors, between MLX arrays and files, without a copy. Only trainers import this.

Arrays given here must be evaluated: any thread may then read their buffers. Nothing here changes an
array that it is given.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import mlx.core as mx

from elasticd.checkpoints import header, integrity
from elasticd.checkpoints.disk import (
    LOCAL_DISK,
    SLICE_BYTES,
    Disk,
    make_folders,
    refusing,
    write_all,
    write_beside,
)
from elasticd.errors import StateError

METADATA_KEY = "elasticd"
"""The entry of a file's metadata that says which state it is part of."""

_FORMAT_NAMES: Mapping[mx.Dtype, str] = {
    mx.bool_: "BOOL",
    mx.uint8: "U8",
    mx.uint16: "U16",
    mx.uint32: "U32",
    mx.uint64: "U64",
    mx.int8: "I8",
    mx.int16: "I16",
    mx.int32: "I32",
    mx.int64: "I64",
    mx.float16: "F16",
    mx.bfloat16: "BF16",
    mx.float32: "F32",
    mx.float64: "F64",
    mx.complex64: "C64",
}
_BLOCK_BYTES = 32 << 20
_WORTH_A_THREAD_BYTES = 8 << 20
_DTYPES = {name: dtype for dtype, name in _FORMAT_NAMES.items()}
_CARRIERS = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}
"""Unsigned types of the same width, whose buffers every Python can read and write."""


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A file that was written: its size, its digest (see :mod:`elasticd.checkpoints.integrity`),
    and the digest of each of its tensors."""

    bytes: int
    digest: str
    tensors: Mapping[str, str]


Pace = Callable[[int], object]
"""Called with the size of each slice that was written; may wait, and may raise to give up."""


def _unpaced(written: int) -> None:
    """As fast as the disk."""


def model_digest(params: Mapping[str, mx.array], pace: Pace = _unpaced) -> str:
    """The ``digest`` of ``status --json``, in hex, over parameters by dotted path.

    blake2b of 32 bytes over the parameters in the order of their paths' UTF-8 bytes. Each adds
    ``path\\0dtype\\0d0,d1\\0`` and then its little-endian row-major bytes.
    """
    digest = hashlib.blake2b(digest_size=32)
    for path in sorted(params, key=lambda path: path.encode()):
        array = params[path]
        dtype = str(array.dtype).rpartition(".")[2]
        shape = ",".join(str(length) for length in array.shape)
        digest.update(f"{path}\0{dtype}\0{shape}\0".encode())
        for piece in _slices(_bytes_of(array)):
            digest.update(piece)
            pace(len(piece))
    return digest.hexdigest()


def write_shard(
    path: Path,
    tensors: Mapping[str, mx.array],
    metadata: Mapping[str, str],
    *,
    disk: Disk = LOCAL_DISK,
    pace: Pace = _unpaced,
) -> ShardFile:
    """Write a safetensors file straight from the arrays' buffers; durable, name and all, on return.

    A missing folder is made. For a background thread: the interpreter is free while each slice is
    hashed and written. The head, which names each tensor's digest, is written last.

    Raises:
        StateError: the disk refuses (the path says where); an older file of that name is then
            untouched.
    """
    make_folders(disk, path.parent)
    kinds = [(name, _FORMAT_NAMES[a.dtype], tuple(a.shape)) for name, a in tensors.items()]
    blank = "0" * integrity.DIGEST_DIGITS
    layout, text = header.encode(kinds, integrity.with_digests(metadata, [blank] * len(kinds)))
    digests: dict[str, str] = {}

    def pieces() -> Iterator[memoryview]:
        yield memoryview(text)
        # Hashed in a thread beside this one, which writes; in long blocks, since on a busy machine
        # each hand-over waits for a processor.
        with ThreadPoolExecutor(1, "elasticd-digest") as beside:
            for entry in layout.entries:
                hasher = integrity.tensor_hasher()
                for block in _slices(_bytes_of(tensors[entry.name]), _BLOCK_BYTES):
                    if len(block) < _WORTH_A_THREAD_BYTES:
                        hasher.update(block)
                        hashed = None
                    else:
                        hashed = beside.submit(hasher.update, block)
                    for piece in _slices(block):
                        yield piece
                        pace(len(piece))
                    if hashed is not None:
                        hashed.result()
                digests[entry.name] = hasher.hexdigest()

    def head() -> bytes:
        nonlocal text
        text = header.encode(kinds, integrity.with_digests(metadata, digests.values()))[1]
        return text

    write_beside(disk, path, pieces(), head)
    return ShardFile(layout.file_bytes, integrity.head_digest(text), digests)


def write_memory(tensors: Mapping[str, mx.array], metadata: Mapping[str, str]) -> int:
    """The same bytes in a nameless file; returns its descriptor, at position 0, to be closed.

    Raises:
        StateError: memory (or, where there are no memory files, the temporary folder) is full.
    """
    with refusing(Path("nameless state file")):
        fd = _nameless()
        try:
            for piece in _pieces(tensors, metadata):
                write_all(fd, piece)
            os.lseek(fd, 0, os.SEEK_SET)
        except BaseException:
            os.close(fd)
            raise
    return fd


def read_tensors(
    sources: Sequence[int | Path],
) -> tuple[dict[str, mx.array], dict[str, str]]:
    """Read and merge safetensors files, given by path or descriptor.

    Returns evaluated arrays by name, and the metadata. A descriptor's position is neither used nor
    moved. Files of other writers are read too.

    Raises:
        StateError: naming the file and the tensor: unreadable, truncated, a header that doesn't fit
            the file, a tensor in two files, or files whose ``elasticd`` metadata differ.
    """
    tensors: dict[str, mx.array] = {}
    merged: dict[str, str] = {}
    for number, source in enumerate(sources):
        where = str(source) if isinstance(source, Path) else f"descriptor {source}"
        found, metadata = _read_file(source, where)
        if number and metadata.get(METADATA_KEY) != merged.get(METADATA_KEY):
            raise StateError(f"{where}: belongs to another state than the files before it")
        for name in found:
            if name in tensors:
                raise StateError(f"{where}: tensor {name!r} is in an earlier file too")
        tensors.update(found)
        merged = {**metadata, **merged}
    merged.pop(integrity.KEY, None)  # of the first file alone
    return tensors, merged


def _pieces(tensors: Mapping[str, mx.array], metadata: Mapping[str, str]) -> Iterator[memoryview]:
    kinds = [(name, _FORMAT_NAMES[a.dtype], tuple(a.shape)) for name, a in tensors.items()]
    head, text = header.encode(kinds, metadata)
    yield memoryview(text)
    for entry in head.entries:
        yield from _slices(_bytes_of(tensors[entry.name]))


def _slices(view: memoryview, size: int = SLICE_BYTES) -> Iterator[memoryview]:
    for start in range(0, len(view), size):
        yield view[start : start + size]


def _bytes_of(array: mx.array) -> memoryview:
    """The array's little-endian row-major bytes, in place where they lie so already."""
    if array.size == 0:
        return memoryview(b"")
    if array.dtype in (mx.bfloat16, mx.complex64):
        # Their buffers have formats that the struct module doesn't know.
        array = array.view(_CARRIERS[array.dtype.size], stream=mx.cpu)
    view = _view(array)
    if not view.c_contiguous:
        view = _view(mx.contiguous(array, stream=mx.cpu))
    return view.cast("B")


def _view(array: mx.array) -> memoryview:
    return memoryview(cast(bytes, array))  # MLX's type stubs leave the buffer protocol out.


def _nameless() -> int:
    if sys.platform == "linux":
        return os.memfd_create("elasticd-state", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile(buffering=0) as file:
        return os.dup(file.fileno())


def _read_file(source: int | Path, where: str) -> tuple[dict[str, mx.array], Mapping[str, str]]:
    with refusing(Path(where)):
        if isinstance(source, int):
            return _read(source, where)
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _read(fd, where)
        finally:
            os.close(fd)


def _read(fd: int, where: str) -> tuple[dict[str, mx.array], Mapping[str, str]]:
    size = os.fstat(fd).st_size
    length = header.text_bytes(os.pread(fd, header.LENGTH_BYTES, 0), size, where)
    head = header.decode(os.pread(fd, length, header.LENGTH_BYTES), size, where)
    tensors = {}
    for entry in head.entries:
        dtype = _DTYPES[entry.dtype]
        # A memoryview shares the array's buffer, so the bytes go straight into a fresh array.
        carrier = mx.zeros(entry.shape, _CARRIERS[dtype.size], stream=mx.cpu)
        mx.eval(carrier)
        if carrier.size:
            view = _view(carrier).cast("B")
            _read_into(fd, view, head.data_start + entry.start, f"{where}: tensor {entry.name!r}")
        tensors[entry.name] = carrier.view(dtype, stream=mx.cpu)
    mx.eval(tensors)
    return tensors, head.metadata


def _read_into(fd: int, view: memoryview, offset: int, where: str) -> None:
    while view:
        count = os.preadv(fd, [view[:SLICE_BYTES]], offset)
        if count == 0:
            raise StateError(f"{where}: the file was cut while it was read")
        view, offset = view[count:], offset + count
