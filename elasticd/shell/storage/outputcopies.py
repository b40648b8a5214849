"""Copies of main's output folders on this node's disk.

Each copy is a folder of its own, made beside and renamed: it is there whole or not at all. A file
that has not changed is the same file in the next copy, since nobody writes in one. What a script
reads and writes, in its own output folder, is always another file.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgpack
import structlog

from elasticd.core.words.codec import from_plain, to_plain
from elasticd.disknames import folded, folders_of
from elasticd.errors import ProtocolError
from elasticd.outputs import (
    DEEPEST,
    Listing,
    OutputFile,
    OutputSet,
    checked,
    is_partial,
    list_files,
    partial_name,
)
from elasticd.shell.storage.durable import PARTIAL_SUFFIX, sync_folder, write_durable, write_whole
from elasticd.types import JobId, NodeId

log = structlog.get_logger(__name__)

_SET = "set.msgpack"
_FILES = "files"
_PLACED = "placed.msgpack"


@dataclass(frozen=True, slots=True)
class Copy:
    """A complete copy."""

    made: OutputSet
    files: Path


class OutputCopies:
    """Blocks: for threads, one at a time for each job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def newest(self, job: JobId) -> Copy | None:
        """What is kept of a job."""
        for path in reversed(self._whole(job)):
            with contextlib.suppress(OSError, ValueError, ProtocolError):
                return Copy(decode_set((path / _SET).read_bytes()), path / _FILES)
        return None

    def stage(self, job: JobId) -> Path:
        """A fresh folder for the files of the next copy."""
        folder = self._folder / job
        for leftover in folder.glob(f"*{PARTIAL_SUFFIX}"):
            shutil.rmtree(leftover, ignore_errors=True)
        whole = self._whole(job)
        number = int(whole[-1].name) + 1 if whole else 1
        staged = folder / f"{number:08d}{PARTIAL_SUFFIX}" / _FILES
        staged.mkdir(parents=True)
        return staged

    def commit(self, job: JobId, staged: Path, made: OutputSet) -> Copy:
        """Make what is staged the newest copy, on the medium; older ones go, but for the newest of
        another main: this one may have begun without that one's files."""
        partial, older = staged.parent, self._whole(job)
        for file in made.listing.files:
            _check_size(staged / file.name, file)
        write_durable(partial / _SET, encode_set(made))
        final = partial.with_name(partial.name.removesuffix(PARTIAL_SUFFIX))
        partial.rename(final)
        sync_folder(final.parent)
        others = [path for path in older if _source(path) not in (None, made.source)]
        for path in older:
            if path not in others[-1:]:
                shutil.rmtree(path, ignore_errors=True)
        return Copy(made, final / _FILES)

    def drop(self, staged: Path) -> None:
        """Give up what is staged."""
        shutil.rmtree(staged.parent, ignore_errors=True)

    def place(
        self, job: JobId, output: Path, *, idle: bool, same: bool, stop: threading.Event
    ) -> None:
        """Have the newest copy's files in a script's own output folder, each whole or not at all.

        A file that a script here has written stays, unless no process of the job is here (``idle``)
        to go on with it. So do the files of ``run.open``, which the library makes like main's. What
        is gone from the copy goes here if it is of the ``same`` main as before. ``stop``: go no
        further than the file in hand.
        """
        copy = self.newest(job)
        if copy is None:
            return
        if idle:
            _sweep(output)
        marks = self._folder / job / _PLACED
        placed = _read_placed(marks)
        here, there = _by_folded(list_files(output)), _by_folded(copy.made.listing)
        now: dict[str, list[int]] = {}
        failed: list[str] = []
        for key in placed.keys() - there.keys():
            if key not in here or _mark(here[key]) != placed[key]:
                continue
            if same and not stop.is_set():
                (output / here[key].name).unlink(missing_ok=True)  # main has removed it
            else:
                now[key] = placed[key]
        for key, file in there.items():
            own = here.get(key)
            ours = own is not None and _mark(own) == placed.get(key)
            if ours and own is not None and (stop.is_set() or _alike(own, file)):
                now[key] = _mark(own)
            elif stop.is_set() or file.managed:
                continue
            elif own is None or ours or (idle and not _alike(own, file)):
                try:
                    if ours and own is not None and own.name != file.name:
                        (output / own.name).unlink()  # main has given it another name
                    now[key] = _put(copy.files / file.name, output, file)
                except OSError as error:  # the others are to come all the same
                    failed.append(f"{file.name}: {error.strerror or error}")
        if now != placed:
            write_whole(marks, msgpack.packb(now))
        if failed:
            log.warning("output files not put in place", job=job, files=failed[:3])

    def _whole(self, job: JobId) -> list[Path]:
        folder = self._folder / job
        names = os.listdir(folder) if folder.is_dir() else []
        return sorted(folder / name for name in names if len(name) == 8 and name.isdecimal())


def encode_set(made: OutputSet) -> bytes:
    data: bytes = msgpack.packb(to_plain(made))
    return data


def decode_set(data: bytes) -> OutputSet:
    """Raises ProtocolError: it is none, or has names that it can't have."""
    try:
        made: OutputSet = from_plain(OutputSet, msgpack.unpackb(data))
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"a list of output files can't be read: {error}") from None
    checked([file.name for file in made.listing.files])
    if any(file.bytes < 0 for file in made.listing.files):
        raise ProtocolError("an output file has no size")
    return made


def _source(path: Path) -> NodeId | None:
    with contextlib.suppress(OSError, ValueError, ProtocolError):
        return decode_set((path / _SET).read_bytes()).source
    return None


def _check_size(path: Path, file: OutputFile) -> None:
    if path.stat().st_size != file.bytes:
        raise ProtocolError(f"{file.name}: came with another size")


def _mark(file: OutputFile) -> list[int]:
    return [file.inode, file.bytes, file.mtime_ns]


def _alike(one: OutputFile, other: OutputFile) -> bool:
    """Whether it is the same file; under the same name, where case counts."""
    return (one.name, one.bytes, one.mtime_ns) == (other.name, other.bytes, other.mtime_ns)


def _by_folded(listing: Listing) -> dict[str, OutputFile]:
    """Files by what their names are on a disk that knows no case: this one may be such."""
    return {folded(file.name): file for file in listing.files}


def _read_placed(path: Path) -> Mapping[str, list[int]]:
    try:
        placed: dict[str, list[int]] = msgpack.unpackb(path.read_bytes())
    except (FileNotFoundError, ValueError, msgpack.UnpackException):
        return {}
    if not isinstance(placed, dict):
        return {}
    return {folded(name): mark for name, mark in placed.items() if isinstance(name, str)}


def _put(source: Path, output: Path, file: OutputFile) -> list[int]:
    """Copy a file into the output folder; returns its mark there. Raises OSError."""
    output.mkdir(parents=True, exist_ok=True)
    for above in folders_of(file.name):
        folder = output / above
        if folder.is_symlink():
            raise NotADirectoryError(f"{folder} leads elsewhere")
        folder.mkdir(exist_ok=True)
    target = output / file.name
    beside = target.with_name(partial_name())
    if target.is_symlink():
        raise FileExistsError(f"{target} is a link")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(beside, flags, 0o644)
    try:
        with open(source, "rb") as old, open(fd, "wb") as new:
            shutil.copyfileobj(old, new)
        os.utime(beside, ns=(file.mtime_ns, file.mtime_ns))
        found = beside.stat()
        beside.rename(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def _sweep(output: Path) -> None:
    """Remove what a crash left half copied."""
    below = [(output, 0)]
    while below:
        folder, depth = below.pop()
        with contextlib.suppress(OSError):  # the script may have closed it
            for entry in list(os.scandir(folder)):
                if is_partial(entry.name):
                    os.unlink(entry.path)
                elif depth < DEEPEST and entry.is_dir(follow_symlinks=False):
                    below.append((folder / entry.name, depth + 1))
