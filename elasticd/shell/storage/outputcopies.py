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
from dataclasses import dataclass
from pathlib import Path

import msgpack

from elasticd.core.words.codec import from_plain, to_plain
from elasticd.errors import ProtocolError
from elasticd.outputs import OutputFile, OutputSet, checked
from elasticd.settings.ownhome import make_inside
from elasticd.shell.storage.durable import PARTIAL_SUFFIX, sync_folder, write_durable
from elasticd.shell.storage.outputplacing import Placing
from elasticd.types import JobId, NodeId

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
        make_inside(self._folder.parent, staged)
        return staged

    def seal(self, staged: Path, made: OutputSet) -> None:
        """Have what is staged on the medium, whole; it is not yet a copy."""
        for file in made.listing.files:
            _check_size(staged / file.name, file)
        write_durable(staged.parent / _SET, encode_set(made))

    def name(self, staged: Path) -> None:
        """Make what is sealed the newest copy. Waits for no disk."""
        staged.parent.rename(_whole_name(staged))

    def settle(self, job: JobId, staged: Path, made: OutputSet) -> Copy:
        """Have its name on the medium too. Older ones go, but for the newest of another main: this
        one may have begun without that one's files."""
        final = _whole_name(staged)
        sync_folder(final.parent)
        older = [path for path in self._whole(job) if path.name < final.name]
        others = [path for path in older if _source(path) not in (None, made.source)]
        for path in older:
            if path not in others[-1:]:
                shutil.rmtree(path, ignore_errors=True)
        return Copy(made, final / _FILES)

    def drop(self, staged: Path) -> None:
        """Give up what is staged."""
        shutil.rmtree(staged.parent, ignore_errors=True)

    def placing(self, made: OutputSet, job: JobId, output: Path, stop: threading.Event) -> Placing:
        """Of a copy's files in a script's own output folder."""
        return Placing(job, self._folder / job / _PLACED, output, made, stop)

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


def _whole_name(staged: Path) -> Path:
    partial = staged.parent
    return partial.with_name(partial.name.removesuffix(PARTIAL_SUFFIX))


def _source(path: Path) -> NodeId | None:
    with contextlib.suppress(OSError, ValueError, ProtocolError):
        return decode_set((path / _SET).read_bytes()).source
    return None


def _check_size(path: Path, file: OutputFile) -> None:
    if path.stat().st_size != file.bytes:
        raise ProtocolError(f"{file.name}: came with another size")
