"""Tokens of rows, made once on each node and kept on its disk for this job and later ones.

A file holds the tokens of all rows one after another, then where each row ends and a checksum of
each, then a digest of those. It is written beside and renamed, so there is a whole one or none.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import blake3
import numpy as np
from numpy.typing import NDArray

from elasticd.checkpoints.medium import order_file
from elasticd.data.codes import code_of
from elasticd.data.cursors import applied, undrawn
from elasticd.errors import OperationError, UsageError
from elasticd.train.steps.data import digests_of
from elasticd.train.steps.likeness import content_digest
from elasticd.types import CACHE_VARIABLE

_FOLDER = "tokens"
_MOST_BYTES = 20 << 30
_TAIL = struct.Struct("<8sQ32s")
"""What it is, how many rows it has, and the digest of what is said of them."""
_MAGIC = b"elastok1"
_ROW_BYTES = 12
"""Of what is said of a row."""
_PIECE_BYTES = 1 << 30
"""That are read at once: macOS refuses 2 GiB."""
Tokens = NDArray[np.int32]


def cached(
    rows: Any,
    function: Callable[[Any], Any],
    *,
    key: str,
    folder: str | os.PathLike[str] | None = None,
    most_bytes: int = _MOST_BYTES,
) -> CachedTokens:
    """What ``function`` makes of each row, whole numbers in a line, by position.

    It is made once on each node, and found by the content of the rows, the function's code with
    what it closes over or is given by ``functools.partial``, and ``key``. Where two processes come
    at once, one makes it.

    Args:
        rows: a ``JsonLines``, or anything with ``len()`` and ``[index]``.
        function: draws no random numbers.
        key: names what the function reads beside the row: the tokenizer, its version, a length.
        folder: where files are; by default the node's cache.
        most_bytes: of all files there. The ones that were not used for longest go.

    Raises:
        UsageError: what it makes are no whole numbers, or more than ``most_bytes``; or of the rows,
            or of the function, can't be told whether they are the same as before.
        OperationError: the disk refuses.
    """
    place = cache_folder() if folder is None else Path(folder)
    digest = blake3.blake3(json.dumps([_content(rows), code_of(function), key]).encode())
    path = place / f"{digest.hexdigest(16)}.tokens"
    try:
        place.mkdir(parents=True, exist_ok=True)
        found = TokenFile.read(path)
        while found is None:
            with _sole(path) as file:
                found = TokenFile.read(path)  # another process may have made it
                if found is None:
                    _make(file, rows, function, path, most_bytes)
                    os.replace(file.name, path)
        with contextlib.suppress(FileNotFoundError):  # another process needs the room
            os.utime(path)
            _make_room(path, most_bytes)
    except OSError as error:
        where = error.filename or path
        raise OperationError(f"{where}: can't be kept: {error.strerror or error}") from None
    return CachedTokens(rows, function, found)


class CachedTokens:
    """For ``elasticd.Run(data=…)``, or to be cut into windows: ``[row]`` is int32[tokens]."""

    def __init__(self, rows: Any, function: Callable[[Any], Any], kept: TokenFile) -> None:
        self._rows, self._function, self._kept = rows, function, kept

    def __len__(self) -> int:
        return len(self._kept.sums)

    def __getitem__(self, row: int) -> Tokens:
        if not 0 <= row < len(self):
            raise IndexError(row)
        tokens = self._kept.tokens(row)
        if tokens is None:
            # The disk has lost it: this row is made anew, and all by who comes next.
            print(f"elasticd: {self._kept.path} is damaged; made anew at need", file=sys.stderr)
            self._kept.path.unlink(missing_ok=True)
            return _numbers(self._rows, self._function, row)
        return tokens

    def __iter__(self) -> Iterator[Tokens]:
        return map(self.__getitem__, range(len(self)))

    def lengths(self) -> list[int]:
        """Of all rows, in tokens; none is read for that."""
        return self._kept.lengths()

    def name(self, row: int) -> str:
        """Of the row that it is made of."""
        return name_of(self._rows, row)

    def digests_by_file(self) -> Mapping[str, str]:
        """Of the rows' files, and of the tokens."""
        own = {"tokens": f"{len(self)} rows, {self._kept.digest}"}
        return {**digests_of(self._rows), **own}


class TokenFile:
    """What a file holds. Its tokens are read row by row; where rows end and their checksums are in
    memory, 12 bytes a row.

    Nothing of it is mapped: for each mapping of a file Python flushes a Mac's whole drive, and who
    touches a page that the disk can't give is killed."""

    def __init__(self, path: Path, file: int, said: bytes, digest: str) -> None:
        """``file``: a descriptor, its own from now on. ``said``: what is said of the rows."""
        self.path, self.digest, self._file = path, digest, file
        count = len(said) // _ROW_BYTES
        self._ends = np.frombuffer(said, "<i8", count)
        self.sums = np.frombuffer(said, "<u4", count, 8 * count)

    def __del__(self) -> None:
        os.close(self._file)

    @classmethod
    def read(cls, path: Path) -> TokenFile | None:
        """None: it is not there, or damaged, and gone now."""
        try:
            with open(path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _TAIL.size))
                magic, count, digest = _TAIL.unpack(file.read(_TAIL.size))
                table = size - _TAIL.size - _ROW_BYTES * count
                if magic == _MAGIC and table >= 0:
                    file.seek(table)
                    said = file.read(_ROW_BYTES * count)
                    ends = np.frombuffer(said, "<i8", count)
                    whole = blake3.blake3(said).digest() == digest
                    if whole and 4 * (int(ends[-1]) if count else 0) == table:
                        return cls(path, os.dup(file.fileno()), said, digest.hex()[:32])
        except FileNotFoundError:
            return None
        except struct.error:
            pass
        print(f"elasticd: {path} is damaged; it is made anew", file=sys.stderr)
        path.unlink(missing_ok=True)
        return None

    def lengths(self) -> list[int]:
        """Of all rows."""
        found: list[int] = np.diff(self._ends, prepend=0).tolist()
        return found

    def tokens(self, row: int) -> Tokens | None:
        """None: they aren't what was written, or the disk can't read them."""
        begin, end = int(self._ends[row - 1]) if row else 0, int(self._ends[row])
        raw = bytearray(4 * (end - begin))
        view, at = memoryview(raw), 4 * begin
        try:
            while view and (got := os.preadv(self._file, [view[:_PIECE_BYTES]], at)):
                view, at = view[got:], at + got
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return None
        return np.frombuffer(raw, "<i4") if zlib.crc32(raw) == int(self.sums[row]) else None


def _make(
    file: IO[bytes], rows: Any, function: Callable[[Any], Any], path: Path, most: int
) -> None:
    """Write it, from the file's beginning."""
    count = len(rows)
    print(f"elasticd: making tokens of {count} rows, once on this node: {path}", file=sys.stderr)
    ends, sums, end = array("q"), array("I"), 0
    file.seek(0)
    file.truncate()
    for row in range(count):
        with (
            undrawn("cached()", "make them where samples are", function)
            if not row
            else contextlib.nullcontext()
        ):
            raw = _numbers(rows, function, row).tobytes()
        end += len(raw) // 4
        if 4 * end + _ROW_BYTES * count + _TAIL.size > most:
            raise UsageError(f"cached(): the tokens take more than most_bytes={most}: raise it")
        ends.append(end)
        sums.append(zlib.crc32(raw))
        file.write(raw)
    said = np.array(ends, "<i8").tobytes() + np.array(sums, "<u4").tobytes()
    file.write(said + _TAIL.pack(_MAGIC, count, blake3.blake3(said).digest()))
    file.flush()
    order_file(file.fileno())


def _numbers(rows: Any, function: Callable[[Any], Any], row: int) -> Tokens:
    made = applied(function, rows[row], lambda: name_of(rows, row))
    return as_tokens(made, f"cached(): of {name_of(rows, row)} come")


def as_tokens(given: Any, of: str) -> Tokens:
    """``given`` as tokens.

    Raises:
        UsageError: it would be other numbers then. It begins with ``of``.
    """
    made = np.asarray(given)
    if made.size == 0:
        made = made.astype(np.int32)
    limits = np.iinfo(np.int32)
    fits = made.ndim == 1 and made.dtype.kind in "iu"
    if not fits or (made.size and not limits.min <= made.min() <= made.max() <= limits.max):
        raise UsageError(
            f"{of} {made.dtype}{list(made.shape)}, which are no tokens: whole numbers of 32 bits"
            " in a line"
        )
    return np.ascontiguousarray(made, "<i4")


def name_of(rows: Any, row: int) -> str:
    """What messages call a row."""
    return str(rows.name(row)) if hasattr(rows, "name") else f"row {row}"


@contextlib.contextmanager
def _sole(path: Path) -> Iterator[IO[bytes]]:
    """A file beside it that no other process writes; it waits for one that does. What is left of
    it at the end, or of a process that was killed, goes."""
    beside = path.with_suffix(".partial")
    while True:
        with open(beside, "ab+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"elasticd: another process makes {path}; waiting", file=sys.stderr)
                fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_still(file, beside):
                continue  # who had it has renamed or removed it
            try:
                yield file
            finally:
                if _is_still(file, beside):
                    beside.unlink()
            return


def _is_still(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _make_room(own: Path, most: int) -> None:
    """Remove what was not used for longest, and what killed processes have left."""
    found: list[tuple[float, int, Path]] = []
    for path in own.parent.iterdir():
        with contextlib.suppress(OSError):  # another process does the same
            if path.suffix == ".partial":
                _remove_left(path)
            elif path.suffix == ".tokens" and path != own:
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
    left = own.stat().st_size + sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if left <= most:
            return
        path.unlink(missing_ok=True)
        left -= size


def _remove_left(path: Path) -> None:
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_still(file, path):
            path.unlink()


def cache_folder(platform: str = sys.platform) -> Path:
    """The node's, which ``elasticctl disk`` shows; alone, the user's."""
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given) / _FOLDER
    usual = Path.home() / ("Library/Caches" if platform == "darwin" else ".cache")
    return Path(os.environ.get("XDG_CACHE_HOME") or usual) / "elasticd" / _FOLDER


def _content(rows: Any) -> list[Any]:
    """What is in the rows."""
    if hasattr(rows, "digests_by_file"):
        return sorted(rows.digests_by_file().items())
    digest = blake3.blake3()
    for row in range(len(rows)):
        try:
            digest.update(content_digest(rows[row]).encode())
        except TypeError as error:
            raise UsageError(
                f"cached(): {name_of(rows, row)} has something of type {error}, of which can't be"
                " told whether it is the same as before: have rows of numbers, texts, bytes,"
                " arrays, and dicts and lists of them"
            ) from None
    return [len(rows), digest.hexdigest()]
