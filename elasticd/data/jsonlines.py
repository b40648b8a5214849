"""Files of JSON lines, by position or as a stream, never in memory as a whole."""

from __future__ import annotations

import glob
import gzip
import json
import os
import threading
import zlib
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from io import BufferedReader
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import blake3
import numpy as np

from elasticd.data.cursors import State
from elasticd.data.stream import SampleStream
from elasticd.errors import UsageError
from elasticd.train.steps.likeness import LineDigests
from elasticd.train.steps.randomness import derive
from elasticd.train.steps.sampling import Permutation

_BUFFER_BYTES = 1 << 20
_END_BYTES = 64 << 10
"""Of a file's beginning and of its end, what is compared of files that are streamed."""
_OPEN_FILES = 64
_MOST_DIGESTS = 512
"""Of lines, that nodes tell one another."""


class JsonLines:
    """The rows of files of JSON lines, ``*.jsonl`` or ``*.jsonl.gz``, in the order of their names.

    Hand it to ``elasticd.Run(data=…)`` as it is, or :meth:`stream` it. As it is all rows are
    shuffled in each epoch: their places, 8 bytes a row, are looked up once, which reads the files
    through. Rows of compressed files have no places; stream them.
    """

    def __init__(self, *patterns: str | os.PathLike[str]) -> None:
        """``patterns`` name files, with ``*`` as a shell does.

        Raises:
            UsageError: there are no such files.
        """
        found: dict[Path, None] = {}
        for pattern in map(Path, patterns):
            by_name = pattern.is_file() or glob.escape(str(pattern)) == str(pattern)
            names = [pattern] if by_name else sorted(glob.glob(str(pattern), recursive=True))
            found |= dict.fromkeys(map(Path, names))
        self.files = tuple(found)
        if not self.files:
            tried = ", ".join(map(str, patterns)) or "nothing"
            raise UsageError(f"JsonLines() finds no file on this node; it was given {tried}")
        if missing := next((path for path in self.files if not path.is_file()), None):
            raise UsageError(f"{missing}: is not on this node")

    def __len__(self) -> int:
        return self._index.starts[-1]

    def __getitem__(self, row: int) -> dict[str, Any]:
        if not 0 <= row < len(self):
            raise IndexError(row)
        file, line, begin, end = self._place(row)
        with named(file, line):
            raw = self._descriptors.read(file, begin, end)
        return parsed(raw, file, line)

    def name(self, row: int) -> str:
        """File and line of a row."""
        file, line, _, _ = self._place(row)
        return f"{file}:{line}"

    def _place(self, row: int) -> tuple[Path, int, int, int]:
        number = bisect_right(self._index.starts, row) - 1
        index, at = self._index.files[number], row - self._index.starts[number]
        line = 1 + at + bisect_right(index.blanks, at)
        return self.files[number], line, index.offsets[at], index.offsets[at + 1]

    @cached_property
    def _index(self) -> _Index:
        most = most_digests(len(self.files))
        return _Index(tuple(_FileIndex(path, most) for path in self.files))

    @cached_property
    def _descriptors(self) -> _Descriptors:
        return _Descriptors()

    def digests_by_file(self) -> Mapping[str, str]:
        """What all nodes must have alike: of each file how many lines, and what is in them."""
        digests: dict[str, str] = {}
        for name, index in zip(self._short_names(), self._index.files, strict=True):
            digests |= index.lines.named(name)
        return digests

    def stream(self, *, compare_all: bool = False) -> SampleStream:
        """The rows one after another, in the files' order. Files are read from the place where
        the job is; compressed ones from their beginning up to there, in memory of no size.

        Args:
            compare_all: nodes compare all of each file before the first step, which reads them
                through in each process, instead of their sizes, beginnings and ends.
        """
        digests = self._of_lines if compare_all else self._of_ends
        return SampleStream(lambda: LineCursor(self.files), digests)

    def _of_ends(self) -> dict[str, str]:
        return dict(zip(self._short_names(), map(_ends, self.files), strict=True))

    def _of_lines(self) -> dict[str, str]:
        most = most_digests(len(self.files))
        found: dict[str, str] = {}
        for name, path in zip(self._short_names(), self.files, strict=True):
            found |= lines_of(path, most).named(name)
        return found

    def _short_names(self) -> list[str]:
        """Without the folder in which all of them are: it may be another on each node."""
        folder = os.path.commonpath([os.path.abspath(path.parent) for path in self.files])
        return [os.path.relpath(os.path.abspath(path), folder) for path in self.files]


class _Index:
    """Where the rows of all files are."""

    def __init__(self, files: tuple[_FileIndex, ...]) -> None:
        self.files = files
        counts = (len(each.offsets) - 1 for each in files)
        self.starts = list(accumulate(counts, initial=0))
        """Number of each file's first row, and of all rows."""


class _FileIndex:
    """Where the rows of a file begin, and what is in it."""

    def __init__(self, path: Path, most_digests: int) -> None:
        if path.suffix == ".gz":
            raise UsageError(
                f"{path}: rows of a compressed file can't be read by position: unpack it, or"
                " use JsonLines(…).stream()"
            )
        self.offsets, self.blanks = array("q"), array("q")
        """Of rows, with the file's end; before which rows blank lines are, one each."""
        self.lines, at = LineDigests(most_digests), 0
        with named(path, 1), open(path, "rb", _BUFFER_BYTES) as file:
            for line in file:
                if line.strip():
                    self.offsets.append(at)
                else:
                    self.blanks.append(len(self.offsets))
                at += len(line)
                self.lines.add(line)
        self.offsets.append(at)


class _Descriptors:
    """Files that are open, the latest of them."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, BufferedReader] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, path: Path, begin: int, end: int) -> bytes:
        """A part of a file; threads may come at once."""
        with self._lock:
            if path not in self._open:
                if len(self._open) >= _OPEN_FILES:
                    self._open.popitem(last=False)[1].close()
                self._open[path] = open(path, "rb")  # noqa: SIM115
            self._open.move_to_end(path)
            return os.pread(self._open[path].fileno(), end - begin, begin)

    def __del__(self) -> None:
        for file in self._open.values():
            file.close()


class LineCursor:
    """Reads rows from a file and a place in it on."""

    def __init__(self, files: tuple[Path, ...]) -> None:
        self._files, self._epoch = files, 0
        self._seed: int | None = None
        self._order = list(range(len(files)))
        self._file: IO[bytes] | None = None
        self._at, self._offset, self._line = 0, 0, 0
        """Place of the file in the order, and what was read of it: bytes and lines."""
        self._name = "the first row"

    def __iter__(self) -> LineCursor:
        return self

    def __next__(self) -> dict[str, Any]:
        while self._at < len(self._order):
            path = self._files[self._order[self._at]]
            with named(path, self._line + 1):
                if self._file is None:
                    self._file = _opened(path, self._offset)
                raw = self._file.readline()
            self._offset += len(raw)
            self._line += 1
            if raw.strip():
                self._name = f"{path}:{self._line}"
                return parsed(raw, path, self._line)
            if not raw:
                self._close()
                self._at, self._offset, self._line = self._at + 1, 0, 0
        raise StopIteration

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def state(self) -> State:
        place = {"file": self._at, "offset": self._offset, "line": self._line}
        return {"epoch": self._epoch, "seed": self._seed, **place}

    def load_state(self, state: State) -> None:
        self._close()
        self.set_epoch(state["epoch"], state["seed"])
        self._at, self._offset, self._line = state["file"], state["offset"], state["line"]

    def set_epoch(self, epoch: int, seed: int | None = None) -> None:
        self._epoch, self._seed = epoch, seed
        count = len(self._files)
        self._order = list(range(count))
        if seed is not None:
            key = derive(seed, "files", epoch)
            self._order = Permutation(count, key, 0)(np.arange(count, dtype=np.uint64)).tolist()

    def name(self) -> str:
        return self._name


def parsed(raw: str | bytes, path: Path, line: int) -> dict[str, Any]:
    """A row. Raises UsageError: the line is none."""
    try:
        row = json.loads(raw)
    except UnicodeDecodeError as error:
        raise no_utf8(error, path, line) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}:{line}: is no JSON: {error}{_one_a_line(raw)}") from None
    if not isinstance(row, dict):
        raise UsageError(f"{path}:{line}: is no JSON object{_one_a_line(raw)}")
    return row


def no_utf8(error: UnicodeDecodeError, path: Path, line: int) -> UsageError:
    byte = error.object[error.start]
    return UsageError(f"{path}:{line}: is no UTF-8: there is a byte {byte:#04x}")


def _one_a_line(line: str | bytes) -> str:
    """What to add about a ``line`` that is no row: what it seems to be instead."""
    begin = (line if isinstance(line, str) else line.decode("utf-8-sig", "replace")).strip()
    if begin.startswith("["):
        return "; a file of rows is no array: there must be one JSON object a line, without [ and ]"
    return "; there must be one JSON object a line" if begin in ("{", "}", "],") else ""


def _opened(path: Path, offset: int) -> IO[bytes]:
    packed = path.suffix == ".gz"
    opened: Any = gzip.open if packed else open
    file: IO[bytes] = opened(path, "rb")
    file.seek(offset)  # a compressed one unpacks what is before it
    return file


def lines_of(path: Path, most: int = _MOST_DIGESTS) -> LineDigests:
    """Read a file through, for at most so many digests. Raises UsageError: it can't be read."""
    found = LineDigests(most)
    with named(path, 1), _opened(path, 0) as file:
        for line in file:
            found.add(line)
    return found


def most_digests(files: int) -> int:
    """Of each of so many files."""
    return max(2, _MOST_DIGESTS // files // 2 * 2)


def _ends(path: Path) -> str:
    with named(path, 1), open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        begin = file.read(_END_BYTES)
        file.seek(max(0, size - _END_BYTES))
        digest = blake3.blake3(begin + file.read(_END_BYTES)).hexdigest(16)
    return f"{size} bytes, {digest}"


@contextmanager
def named(path: Path, line: int) -> Iterator[None]:
    """What is wrong with a file is said with its name."""
    try:
        yield
    except FileNotFoundError:
        raise UsageError(f"{path}: is not on this node") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{path}:{line}: can't be unpacked from here on: {error}") from None
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror or error}") from None
