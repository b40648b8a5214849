"""Checkpoints as plain safetensors that other programs read, made of the shards' own bytes.

Needs no MLX: the tensors' bytes are copied from file to file, each verified on its way. The
safetensors library reads each file before it appears.

It does not write them: ``serialize_file`` wants the addresses of whole tensors. Those of a mapped
shard end this process (SIGBUS) if the disk can't read a page, each byte would be read once to be
verified and again to be written, and it neither syncs nor tells how far it is.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError, safe_open

from elasticd.checkpoints import header, integrity
from elasticd.checkpoints.disk import (
    LOCAL_DISK,
    TEMPORARY,
    Disk,
    refusing,
    write_beside,
)
from elasticd.checkpoints.sequential import SLICE_BYTES
from elasticd.errors import StateError, UsageError, naming
from elasticd.namedfile import place_of

MODEL, OPTIMIZER = "model/", "optimizer/"
STATE_KEY = "elasticd"
"""The metadata entry of a shard that describes its state (docs/protocols.md §1)."""
FORMAT = {"format": "mlx"}
FILE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
OPTIMIZER_SUFFIX = ".optimizer.safetensors"

Progress = Callable[[int], object]
"""Called with the number of bytes that were copied since the last call."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a stored state: its bytes are ``size`` from ``offset`` on in the file ``fd``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    fd: int
    offset: int
    size: int
    digest: str
    where: str


@dataclass(frozen=True)
class Exported:
    """What was written; ``bytes`` and ``tensors`` count the model's alone."""

    files: tuple[Path, ...]
    tensors: int
    bytes: int


@dataclass
class CheckpointReader:
    """The shards of one checkpoint, open for reading; a context."""

    model: dict[str, Tensor] = field(default_factory=dict)
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    plain_optimizer: object = None
    _files: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @classmethod
    def open(cls, shards: Sequence[tuple[Path, str]]) -> CheckpointReader:
        """Open shards, given as (path, digest).

        Raises:
            StateError: one can't be read or isn't what its digest says.
        """
        source = cls()
        try:
            for path, digest in shards:
                source._add(path, digest)
        except BaseException:
            source.close()
            raise
        return source

    def __enter__(self) -> CheckpointReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._files.close()

    def _add(self, path: Path, digest: str) -> None:
        with refusing(path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._files.callback(os.close, fd)
            size = os.fstat(fd).st_size
            length = header.text_bytes(os.pread(fd, header.LENGTH_BYTES, 0), size, str(path))
            text = os.pread(fd, length, header.LENGTH_BYTES)
            head = header.decode(text, size, str(path))
            digests: Sequence[str]
            if digest.startswith(integrity.PREFIX):
                if integrity.head_digest(length.to_bytes(8, "little") + text) != digest:
                    raise StateError(f"{path}: its head is not what was written")
                digests = integrity.digests_of(head)
            else:
                _verify_whole(fd, size, digest, str(path))
                digests = [""] * len(head.entries)
        try:
            said = json.loads(head.metadata[STATE_KEY])
            hidden = said.get("hidden")
            self.plain_optimizer = said["user"].get("optimizer")
        except (KeyError, ValueError, AttributeError) as error:
            raise StateError(f"{path}: doesn't describe its state: {error!r}") from None
        for entry, own in zip(head.entries, digests, strict=True):
            tensor = Tensor(
                entry.name, entry.dtype, entry.shape, fd, head.data_start + entry.start,
                entry.end - entry.start, own, str(path),
            )  # fmt: skip
            if entry.name.startswith(MODEL):
                name = entry.name.removeprefix(MODEL)
                if not _is_hidden(name, hidden):
                    self.model[name] = tensor
            elif entry.name.startswith(OPTIMIZER):
                self.optimizer[entry.name.removeprefix(OPTIMIZER)] = tensor

    @property
    def model_bytes(self) -> int:
        return sum(tensor.size for tensor in self.model.values())

    @property
    def optimizer_bytes(self) -> int:
        return sum(tensor.size for tensor in self.optimizer.values())


def _is_hidden(name: str, hidden: Sequence[str] | None) -> bool:
    """Whether a tensor of the model isn't among ``model.parameters()``."""
    if hidden is not None:
        return name in hidden
    # What MLX itself goes by, for states that don't say it.
    return any(part.startswith("_") for part in name.split("."))


def _verify_whole(fd: int, size: int, digest: str, where: str) -> None:
    check = integrity.Verifier(digest)
    for offset in range(0, size, SLICE_BYTES):
        check.update(os.pread(fd, SLICE_BYTES, offset))
    if (finding := check.finish()) is not None:
        raise StateError(f"{where}: {finding.reason}")


def export(
    source: CheckpointReader,
    out: Path,
    *,
    optimizer: bool = False,
    shard_bytes: int | None = None,
    progress: Progress = lambda count: None,
    disk: Disk = LOCAL_DISK,
    overwrite: bool = True,
) -> Exported:
    """Write the model's parameters, named as in ``model.parameters()``, to ``out``.

    ``out`` is a file, or a folder that gets ``model.safetensors``. With ``shard_bytes`` it is a
    new folder with files of at most about so many bytes and ``model.safetensors.index.json``.
    ``optimizer`` adds a file with its state. Each file appears whole or not at all; a new folder
    too. Without ``overwrite`` no file is replaced, also if it has come only now.

    Raises:
        StateError: the disk refuses, or a tensor isn't what was written.
        UsageError: what is at ``out`` is in the way: no file, or no empty folder.
    """
    if not source.model:
        raise StateError("this checkpoint has no parameters of a model")
    if shard_bytes is not None:
        return _export_set(source, out, shard_bytes, optimizer, progress, disk)
    files = targets(out, optimizer=optimizer)
    places = [place_of(path, overwrite=overwrite) for path in files]
    # The model comes last: whoever waits for it finds everything.
    if optimizer:
        apart = places[0].parent != places[1].parent  # links may lead to other disks
        metadata = _optimizer_metadata(source)
        _write(disk, places[1], source.optimizer, metadata, progress, last=apart)
    _write(disk, places[0], source.model, FORMAT, progress)
    return Exported(tuple(files), len(source.model), source.model_bytes)


def targets(out: Path, *, optimizer: bool) -> list[Path]:
    """The files that :func:`export` writes without ``shard_bytes``, the model's first."""
    path = out / FILE_NAME if out.is_dir() else out
    return [path, path.with_name(path.stem + OPTIMIZER_SUFFIX)] if optimizer else [path]


def _export_set(
    source: CheckpointReader,
    out: Path,
    shard_bytes: int,
    optimizer: bool,
    progress: Progress,
    disk: Disk,
) -> Exported:
    if shard_bytes < 1:
        raise UsageError(f"files of {shard_bytes} bytes can't be written")
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UsageError(f"{out}: is there already; a sharded set needs a new folder")
    if not out.parent.is_dir():
        raise UsageError(f"{out.parent}: there is no such folder")
    beside = out.with_name(f".{out.name}{TEMPORARY}")
    with refusing(out), naming(out, beside):
        disk.remove_folder(beside)
        disk.make_folder(beside)
    try:
        names = _write_set(source, beside, shard_bytes, optimizer, progress, disk)
        with refusing(out), naming(out, beside):
            disk.rename(beside, out)
            disk.sync_folder(out.parent)
    finally:
        with contextlib.suppress(OSError):
            disk.remove_folder(beside)
    files = tuple(out / name for name in names)
    return Exported(files, len(source.model), source.model_bytes)


def _write_set(
    source: CheckpointReader,
    folder: Path,
    limit: int,
    optimizer: bool,
    progress: Progress,
    disk: Disk,
) -> list[str]:
    """The names of the files; they are durable once the folder above is synced."""
    parts = cut({name: tensor.size for name, tensor in source.model.items()}, limit)
    names = [f"model-{i:05d}-of-{len(parts):05d}.safetensors" for i in range(1, len(parts) + 1)]
    where: dict[str, str] = {}
    for file, part in zip(names, parts, strict=True):
        tensors = {name: source.model[name] for name in part}
        _write(disk, folder / file, tensors, FORMAT, progress, last=False)
        where |= dict.fromkeys(part, file)
    index = {
        "metadata": {"total_size": source.model_bytes},
        "weight_map": dict(sorted(where.items())),
    }
    text = json.dumps(index, indent=2).encode() + b"\n"
    write_beside(disk, folder / INDEX_NAME, [text], last=False)
    names.append(INDEX_NAME)
    if optimizer:
        # Not "model*": mlx-lm takes every file of that name for parameters.
        names.append("optimizer.safetensors")
        metadata = _optimizer_metadata(source)
        _write(disk, folder / names[-1], source.optimizer, metadata, progress, last=False)
    return names


def cut(sizes: Mapping[str, int], limit: int) -> list[list[str]]:
    """Names in order, cut where the next would pass ``limit`` bytes; a larger one stands alone."""
    parts: list[list[str]] = []
    room = 0
    for name in sorted(sizes):
        if not parts or sizes[name] > room:
            parts.append([])
            room = limit
        parts[-1].append(name)
        room -= sizes[name]
    return parts


def _optimizer_metadata(source: CheckpointReader) -> dict[str, str]:
    return {**FORMAT, STATE_KEY: json.dumps(source.plain_optimizer, sort_keys=True)}


def _write(
    disk: Disk,
    path: Path,
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    progress: Progress,
    *,
    last: bool = True,
) -> None:
    kinds = [(name, tensor.dtype, tensor.shape) for name, tensor in tensors.items()]
    head, text = header.encode(kinds, metadata)

    def pieces() -> Iterator[bytes]:
        yield text
        for entry in head.entries:
            for piece in _read(tensors[entry.name]):
                yield piece
                progress(len(piece))

    def check(beside: Path) -> None:
        _check(beside, path, kinds, metadata)

    write_beside(disk, path, pieces(), check=check, last=last)


def _check(
    written: Path,
    path: Path,
    kinds: Sequence[tuple[str, str, tuple[int, ...]]],
    metadata: Mapping[str, str],
) -> None:
    """That the safetensors library finds in the file what it is to have: others read it by that.

    Raises:
        StateError: it doesn't.
    """
    try:
        with safe_open(written, "numpy") as file:
            names = file.keys()
            slices = {name: file.get_slice(name) for name in names}
            found = {(n, s.get_dtype(), tuple(s.get_shape())) for n, s in slices.items()}
            said = file.metadata()
    except (SafetensorError, OSError) as error:
        raise StateError(f"{path}: the safetensors library can't read it: {error}") from None
    if found != set(kinds) or said != metadata:
        raise StateError(f"{path}: the safetensors library reads something else than was written")


def _read(tensor: Tensor) -> Iterator[bytes]:
    hasher = integrity.tensor_hasher()
    offset, end = tensor.offset, tensor.offset + tensor.size
    while offset < end:
        with refusing(Path(tensor.where)):
            piece = os.pread(tensor.fd, min(SLICE_BYTES, end - offset), offset)
        if not piece:
            raise StateError(f"{tensor.where}: the file was cut while it was read")
        hasher.update(piece)
        offset += len(piece)
        yield piece
    if tensor.digest and hasher.hexdigest() != tensor.digest:
        raise StateError(f"{tensor.where}: tensor {tensor.name!r} is not what was written")
