"""A copy's files come into a script's own output folder, each whole or not at all.

Their content is written beside first, which may take long. What is then left are names, so that a
copy and its files are there together: who may become main waits for that. Which files are of a copy
and not a script's own is noted before they have their names. So a node that is killed in between
knows them when it is started again, and puts the others in place.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import structlog

from elasticd.disknames import folded, folders_of
from elasticd.outputs import (
    DEEPEST,
    OWN_FOLDER,
    WHOLE_PREFIX,
    Listing,
    OutputFile,
    OutputSet,
    is_partial,
    list_files,
    partial_name,
)
from elasticd.outputsigns import given
from elasticd.shell.storage.durable import write_whole
from elasticd.types import JobId

log = structlog.get_logger(__name__)

_SOURCES, _COMING = b"sources", b"coming"
"""Earlier versions, which take names in words only, read past them."""
_Mark = list[int]
"""By which a file is known that no script has written to."""


@dataclass
class Placed:
    """What is noted of the files of copies, by their folded names."""

    marks: dict[str, _Mark] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    """Whose copy they came from. Who never had a file has not removed it."""
    coming: dict[str, _Mark] = field(default_factory=dict)
    """Those that are about to get their names."""

    def ours(self, key: str, file: OutputFile | None) -> bool:
        """Whether no script has written it."""
        return file is not None and file.mark in (self.marks.get(key), self.coming.get(key))

    def take(self, key: str, mark: _Mark, source: str | None) -> None:
        self.marks[key] = mark
        if source is not None:
            self.sources[key] = source

    def forget(self, key: str) -> None:
        self.marks.pop(key, None)
        self.sources.pop(key, None)

    @classmethod
    def read(cls, path: Path) -> Placed:
        try:
            said = msgpack.unpackb(path.read_bytes())
        except (FileNotFoundError, ValueError, msgpack.UnpackException):
            return cls()
        if not isinstance(said, dict):
            return cls()
        return cls(_by_words(said), _by_words(said.get(_SOURCES)), _by_words(said.get(_COMING)))

    def write(self, path: Path) -> None:
        said: dict[str | bytes, Any] = {_SOURCES: self.sources, _COMING: self.coming}
        said.update(self.marks)
        write_whole(path, msgpack.packb(said))


@dataclass(frozen=True)
class _Step:
    """One file gets its name, or goes."""

    key: str
    own: OutputFile | None
    """What is there."""
    name: str
    beside: Path | None
    """None: it goes."""


class Placing:
    """Of one copy. Blocks; :meth:`begin`, then :meth:`finish`, and :meth:`drop` in any case."""

    def __init__(
        self, job: JobId, marks: Path, output: Path, made: OutputSet, stop: threading.Event
    ) -> None:
        """``marks``: the file of notes. ``stop``: go no further than the file in hand."""
        self._job, self._marks, self._output, self._made = job, marks, output, made
        self._stop = stop
        self._before, self._after = Placed(), Placed()
        self._given: dict[str, Any] = {}
        self._steps: list[_Step] = []
        self._failed: list[str] = []
        self.damaged: list[OutputFile] = []
        """Files that the disk has changed in the copy. They stay away."""

    def begin(self, files: Path, *, idle: bool, newer: bool = False) -> None:
        """Have the content beside where it is to be.

        A file that a script here has written stays, unless no process of the job is here (``idle``)
        to go on with it, or it is older than the state that this process was given, and these are
        not (``newer``). So do the files of ``run.open``, which the library makes like
        main's. What main has removed goes, and what it never had stays.
        """
        if idle:
            sweep(self._output)
        here, there = _by_folded(list_files(self._output)), _by_folded(self._made.listing)
        before = self._before = Placed.read(self._marks)
        self._after = Placed()
        self._given = _by_words(given(self._output)) if newer else {}
        for key in sorted((before.marks.keys() | before.coming.keys()) - there.keys()):
            own = here.get(key)
            if own is None or not before.ours(key, own):
                continue
            source = before.sources.get(key)
            self._after.take(key, own.mark, source)
            if source == self._made.source:
                self._steps.append(_Step(key, own, own.name, None))
        for key, file in there.items():
            self._begin(key, file, here.get(key), files, idle)
        if self._steps:
            self._note_what_comes()

    def _begin(
        self, key: str, file: OutputFile, own: OutputFile | None, files: Path, idle: bool
    ) -> None:
        ours = self._before.ours(key, own)
        alike = own is not None and _alike(own, file)
        if file.managed and not alike:
            return
        if own is not None and ours:
            source = self._made.source if alike else self._before.sources.get(key)
            self._after.take(key, own.mark, source)
        elif own is not None and alike and idle:
            self._after.take(key, own.mark, self._made.source)
        if self._stop.is_set() or alike:
            return
        if own is None or ours or idle or own.mark == self._given.get(key):
            try:
                beside = _beside(files / file.name, self._output, file)
            except OSError as error:  # the others are to come all the same
                self._fail(file.name, error)
            else:
                if not self._made.has(file.name, beside):
                    beside.unlink()
                    self.damaged.append(file)
                    return
                self._steps.append(_Step(key, own, file.name, beside))

    def _note_what_comes(self) -> None:
        coming = {step.key: _mark_of(step.beside) for step in self._steps if step.beside}
        sources = {**self._after.sources, **dict.fromkeys(coming, self._made.source)}
        Placed(self._after.marks, sources, coming).write(self._marks)

    def finish(self) -> None:
        """Give the files their names. Only then others go: a node that is killed in between has the
        older or the newer."""
        for step in sorted(self._steps, key=lambda step: step.beside is None):
            if self._stop.is_set():
                break
            try:
                self._do(step)
            except OSError as error:
                self._fail(step.name, error)
        self.drop()
        if self._failed:
            log.warning("output files not put in place", job=self._job, files=self._failed[:3])

    def drop(self) -> None:
        """Give up what has no name yet."""
        steps, self._steps = self._steps, []
        for step in steps:
            if step.beside is not None:
                step.beside.unlink(missing_ok=True)
        if self._after != self._before:
            self._after.write(self._marks)
            self._before = self._after

    def _do(self, step: _Step) -> None:
        own, target = step.own, self._output / step.name
        if own is not None and not _is_still(self._output / own.name, own):
            return  # a script has just written it
        if step.beside is None:
            target.unlink(missing_ok=True)
            self._after.forget(step.key)
            return
        if own is not None and own.name != step.name and self._before.ours(step.key, own):
            (self._output / own.name).unlink()  # main has given it another name
            own = None
        mark = _mark_of(step.beside)
        if own is not None:
            step.beside.rename(target)
        elif not _named(step.beside, target):
            return  # a script has just made it
        self._after.take(step.key, mark, self._made.source)

    def _fail(self, name: str, error: OSError) -> None:
        self._failed.append(f"{name}: {error.strerror or error}")


def sweep(output: Path) -> None:
    """Remove what a crash left half copied."""
    below = [(output, 0)]
    while below:
        folder, depth = below.pop()
        with contextlib.suppress(OSError):  # the script may have closed it
            for entry in list(os.scandir(folder)):
                if is_partial(entry.name):
                    os.unlink(entry.path)
                elif folder.name == OWN_FOLDER and entry.name.startswith(WHOLE_PREFIX):
                    shutil.rmtree(entry.path, ignore_errors=True)
                elif depth < DEEPEST and entry.is_dir(follow_symlinks=False):
                    below.append((folder / entry.name, depth + 1))


def _by_words(said: Any) -> dict[str, Any]:
    if not isinstance(said, Mapping):
        return {}
    return {folded(name): each for name, each in said.items() if isinstance(name, str)}


def _mark_of(path: Path) -> _Mark:
    found = path.lstat()
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def _is_still(path: Path, file: OutputFile) -> bool:
    with contextlib.suppress(OSError):
        return _mark_of(path) == file.mark
    return False


def _named(beside: Path, target: Path) -> bool:
    """Give a file its name, unless another has it."""
    try:
        os.link(beside, target)
    except FileExistsError:
        return False
    except OSError:  # this disk knows no second names
        if os.path.lexists(target):
            return False
        beside.rename(target)
    else:
        beside.unlink()
    return True


def _alike(one: OutputFile, other: OutputFile) -> bool:
    """Whether it is the same file; under the same name, where case counts."""
    return (one.name, one.bytes, one.mtime_ns) == (other.name, other.bytes, other.mtime_ns)


def _by_folded(listing: Listing) -> dict[str, OutputFile]:
    """Files by what their names are on a disk that knows no case: this one may be such."""
    return {folded(file.name): file for file in listing.files}


def _beside(source: Path, output: Path, file: OutputFile) -> Path:
    """A file's content beside where it is to be in the output folder. Raises OSError."""
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
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return beside
