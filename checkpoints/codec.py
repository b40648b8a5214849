"""States as safetensors, between MLX arrays and files, without a copy. Only trainers import this.

Arrays given here must be evaluated: any thread may then read their buffers. Nothing here changes an
array that it is given.
"""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx

from elasticd.checkpoints import header, integrity
from elasticd.checkpoints.disk import (
    LOCAL_DISK,
    Disk,
    filling,
    refusing,
    write_beside,
)
from elasticd.checkpoints.nameless import nameless
from elasticd.checkpoints.sequential import SLICE_BYTES, write_all
from elasticd.errors import RotError, StateError

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
_READING = ThreadPoolExecutor(4, "elasticd-read")
"""Threads that read and hash; more than a few disks or memories can't feed. They stay: for each
thread in which MLX computes it starts one of its own, which never ends."""
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


def unpaced(written: int) -> None:
    """As fast as the disk."""


def model_digest(params: Mapping[str, mx.array], pace: Pace = unpaced) -> str:
    """The ``digest`` of ``status --json``, in hex, over parameters by dotted path.

    blake2b of 32 bytes over the parameters in the order of their paths' UTF-8 bytes. Each adds
    ``path\\0dtype\\0d0,d1\\0`` and then its little-endian row-major bytes.
    """
    digest = hashlib.blake2b(digest_size=32)
    for path in sorted(params, key=lambda path: path.encode()):
        digest.update(_kind(path, params[path]))
        for piece in _hashed(params[path], digest):
            pace(len(piece))
    return digest.hexdigest()


def model_check(
    params: Mapping[str, mx.array], known: Mapping[str, str], pace: Pace = unpaced
) -> str:
    """As :func:`model_digest`, of the same content, at a quarter of its cost: only members of one
    world compare it. ``known`` are digests of tensors, by path, as :func:`write_shard` found them.
    """
    check = integrity.tensor_hasher()
    for path in sorted(params):
        digest = known.get(path)
        if digest is None:
            hasher = integrity.tensor_hasher()
            for piece in _hashed(params[path], hasher):
                pace(len(piece))
            digest = hasher.hexdigest()
        check.update(_kind(path, params[path]) + digest.encode())
    return check.hexdigest()


def write_shard(
    path: Path,
    tensors: Mapping[str, mx.array],
    metadata: Mapping[str, str],
    *,
    root: Path | None = None,
    disk: Disk = LOCAL_DISK,
    pace: Pace = unpaced,
) -> ShardFile:
    """Write a safetensors file straight from the arrays' buffers; durable, name and all, on return.

    The safetensors library's ``serialize_file`` would do neither of what follows: it holds all at
    once, can't be slowed down, hashes nothing and syncs nothing. It reads what this writes, and the
    other way round (tests/unit/checkpoints/test_safetensors.py).

    A missing folder is made below ``root`` (None: the one above it), which has to be there. For a
    background thread: the interpreter is free while each slice is hashed and written. The head,
    which names each tensor's digest, is written last.

    Raises:
        StateError: the disk refuses (the path says where); an older file of that name is then
            untouched.
    """
    kinds = [(name, _FORMAT_NAMES[a.dtype], tuple(a.shape)) for name, a in tensors.items()]
    blank = "0" * integrity.DIGEST_DIGITS
    layout, text = header.encode(kinds, integrity.with_digests(metadata, [blank] * len(kinds)))
    digests: dict[str, str] = {}

    def pieces() -> Iterator[memoryview]:
        yield memoryview(text)
        for entry in layout.entries:
            hasher = integrity.tensor_hasher()
            for piece in _hashed(tensors[entry.name], hasher):
                yield piece
                pace(len(piece))
            digests[entry.name] = hasher.hexdigest()

    def head() -> bytes:
        nonlocal text
        text = header.encode(kinds, integrity.with_digests(metadata, digests.values()))[1]
        return text

    with filling(disk, path.parent, root or path.parent.parent):
        write_beside(disk, path, pieces(), head, contested=True)
    return ShardFile(layout.file_bytes, integrity.head_digest(text), digests)


def write_memory(
    tensors: Mapping[str, mx.array], metadata: Mapping[str, str], platform: str = sys.platform
) -> int:
    """The same in nameless memory; returns its descriptor, to be closed. On macOS it can only be
    mapped, and is as large as whole pages.

    Raises:
        StateError: memory is full.
    """
    with refusing(Path("nameless state file")):
        fd = nameless(platform, "elasticd-state")
        try:
            if platform == "linux":
                for piece in _pieces(tensors, metadata):
                    write_all(fd, piece)
                os.lseek(fd, 0, os.SEEK_SET)
            else:
                _map_into(fd, tensors, metadata)
        except BaseException:
            os.close(fd)
            raise
    return fd


def read_tensors(
    sources: Sequence[int | Path], digests: Sequence[str] = ()
) -> tuple[dict[str, mx.array], dict[str, str]]:
    """Read and merge safetensors files, given by path or descriptor.

    Returns evaluated arrays by name, and the metadata. A descriptor's position is neither used nor
    moved. Files of other writers are read too. ``digests`` of all ``sources``, or none: each byte
    is then hashed as it comes, so that a restore reads every file once.

    Raises:
        RotError: naming the file and the tensor whose bytes its digest does not fit.
        StateError: naming the file and the tensor: unreadable, truncated, a header that doesn't fit
            the file, a tensor in two files, or files whose ``elasticd`` metadata differ in more
            than the lineage: who gives a part may have gone on in another one already.
    """
    merged: dict[str, str] = {}
    parts: dict[str, _Part] = {}
    with ExitStack() as stack:
        for number, source in enumerate(sources):
            called = f"part {number + 1} of {len(sources)} of a state"
            fd, where = stack.enter_context(_opened(source, called))
            found, metadata = _parts(fd, where, digests[number] if digests else "")
            differing = _differing(merged, metadata) if number else ""
            if differing:
                raise StateError(
                    f"{where}: belongs to another state than the files before it: {differing}"
                )
            for part in found:
                name = part.entry.name
                if name in parts:
                    raise StateError(f"{where}: tensor {name!r} is in an earlier file too")
                parts[name] = part
            merged = {**metadata, **merged}
        carriers = _read_parts(list(parts.values()))
    tensors = {
        name: carrier.view(_DTYPES[part.entry.dtype], stream=mx.cpu)
        for (name, part), carrier in zip(parts.items(), carriers, strict=True)
    }
    mx.eval(tensors)
    merged.pop(integrity.KEY, None)  # of the first file alone
    return tensors, merged


def _pieces(
    tensors: Mapping[str, mx.array], metadata: Mapping[str, str], page_bytes: int = 1
) -> Iterator[memoryview]:
    kinds = [(name, _FORMAT_NAMES[a.dtype], tuple(a.shape)) for name, a in tensors.items()]
    head, text = header.encode(kinds, metadata, page_bytes)
    yield memoryview(text)
    for entry in head.entries:
        yield from _slices(_bytes_of(tensors[entry.name]))


def _kind(path: str, array: mx.array) -> bytes:
    dtype = str(array.dtype).rpartition(".")[2]
    shape = ",".join(str(length) for length in array.shape)
    return f"{path}\0{dtype}\0{shape}\0".encode()


def _hashed(array: mx.array, hasher: integrity.Hasher) -> Iterator[memoryview]:
    """The array's bytes in slices, each hashed before it is handed on."""
    for piece in _slices(_bytes_of(array)):
        hasher.update(piece)
        yield piece


def _slices(view: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(view), SLICE_BYTES):
        yield view[start : start + SLICE_BYTES]


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


def _map_into(fd: int, tensors: Mapping[str, mx.array], metadata: Mapping[str, str]) -> None:
    pieces = list(_pieces(tensors, metadata, mmap.PAGESIZE))
    size = sum(map(len, pieces))
    os.ftruncate(fd, size)
    with mmap.mmap(fd, size) as mapped:
        for piece in pieces:
            mapped.write(piece)


@dataclass(frozen=True, slots=True)
class _Part:
    """A tensor to be read, from where, and the digest that its bytes should have."""

    fd: int
    entry: header.TensorEntry
    offset: int
    digest: str
    where: str


@contextmanager
def _opened(source: int | Path, name: str) -> Iterator[tuple[int, str]]:
    """A descriptor, and what to call it: ``name`` if it came as such."""
    if isinstance(source, int):
        yield source, name
        return
    with refusing(source):
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd, str(source)
    finally:
        os.close(fd)


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> str:
    """In what two descriptions of a state differ; empty: they are of one state."""
    first, second = one.get(METADATA_KEY), other.get(METADATA_KEY)
    if first == second:
        return ""
    try:
        said: list[dict[str, Any]] = [json.loads(text or "") for text in (first, second)]
        names = sorted({name for each in said for name in each} - {"lineage"})
        # NaN is no more than itself; as texts they are alike.
        texts = [[json.dumps(each.get(name), sort_keys=True) for name in names] for each in said]
    except (ValueError, AttributeError, TypeError):
        return "they say what can't be read"
    found = [name for name, a, b in zip(names, *texts, strict=True) if a != b]
    return ", ".join(f"{name!r} differs" for name in found)


def _parts(fd: int, where: str, digest: str) -> tuple[list[_Part], Mapping[str, str]]:
    """What a file's head says that there is to read, and its metadata."""
    with refusing(Path(where)):
        size = os.fstat(fd).st_size
        first = _read(fd, header.LENGTH_BYTES, 0)
        length = header.text_bytes(first, size, where)
        text = _read(fd, length, header.LENGTH_BYTES)
    wanted: Sequence[str] = ()
    if digest and not digest.startswith(integrity.PREFIX):
        _check_whole(fd, where, digest)
    elif digest and integrity.head_digest(first + text) != digest:
        raise RotError(f"{where}: its head is not what was written")
    head = header.decode(text, size, where)
    if digest.startswith(integrity.PREFIX):
        wanted = integrity.digests_of(head)
    parts = []
    for number, entry in enumerate(head.entries):
        hashed = wanted[number] if wanted else ""
        parts.append(_Part(fd, entry, head.data_start + entry.start, hashed, where))
    return parts, head.metadata


def _check_whole(fd: int, where: str, digest: str) -> None:
    """Read a file of an earlier version, whose digest is that of all its bytes."""
    check, offset = integrity.Verifier(digest), 0
    with refusing(Path(where)):
        while data := _read(fd, SLICE_BYTES, offset):
            check.update(data)
            offset += len(data)
    if (finding := check.finish()) is not None:
        raise RotError(f"{where}: {finding.reason}")


def _read_parts(parts: Sequence[_Part]) -> list[mx.array]:
    """All of them, several at a time. When it returns or raises nothing reads any more."""
    reading = [_READING.submit(_read_part, part) for part in parts]
    try:
        return [each.result() for each in reading]
    finally:
        for each in reading:
            each.cancel()
        wait(reading)


def _read_part(part: _Part) -> mx.array:
    """In a thread: read a tensor straight into a fresh array of unsigned numbers of its width, and
    hash it on the way."""
    name = f"{part.where}: tensor {part.entry.name!r}"
    carrier = mx.zeros(part.entry.shape, _CARRIERS[_DTYPES[part.entry.dtype].size], stream=mx.cpu)
    mx.eval(carrier)
    hasher = integrity.tensor_hasher() if part.digest else None
    if carrier.size:
        # A memoryview shares the array's buffer, so the bytes go where they are to stay.
        view, offset = _view(carrier).cast("B"), part.offset
        with refusing(Path(part.where)):
            while view:
                count = _read_into(part.fd, view[:SLICE_BYTES], offset)
                if count == 0:
                    raise StateError(f"{name}: the file was cut while it was read")
                if hasher is not None:
                    hasher.update(view[:count])
                view, offset = view[count:], offset + count
    if hasher is not None and hasher.hexdigest() != part.digest:
        raise RotError(f"{name} is not what was written")
    return carrier


def _read(fd: int, count: int, offset: int) -> bytes:
    data = bytearray(count)
    return bytes(data[: _read_into(fd, memoryview(data), offset)])


def _read_into(fd: int, view: memoryview, offset: int) -> int:
    """Also of memory that can only be mapped, as :func:`write_memory` makes it on macOS."""
    try:
        return os.preadv(fd, [view], offset)
    except OSError as error:
        if error.errno != errno.ESPIPE:
            raise
    size = os.fstat(fd).st_size
    with (
        mmap.mmap(fd, size, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as whole,
        whole[offset : offset + len(view)] as piece,
    ):
        view[: len(piece)] = piece
        return len(piece)
