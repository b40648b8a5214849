"""Log files of child processes: appended to by the child itself, rotated by the daemon.

The child holds the file open, so it can't be renamed away: rotation copies it and truncates it, as
logrotate's ``copytruncate`` does. The child's descriptor has O_APPEND, hence it goes on at the new
start. A line written between copy and truncation is carried over in a second look, which leaves a
window of microseconds; the price of children that outlive their daemon and its pipes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

ROTATE_AT_BYTES = 16 * 1024 * 1024
KEEP_OLD = 3
CHUNK_BYTES = 64 * 1024


Dropping = Callable[[int], AbstractContextManager[object]]
"""Given the size in bytes of the oldest part, 0 if none goes; entered while parts move."""


def unseen(size_bytes: int) -> AbstractContextManager[object]:
    """Nobody counts what goes."""
    return nullcontext()


@dataclass(frozen=True, slots=True)
class Position:
    """Where a follower stands: ``rotation`` counts the rotations that the log has seen."""

    rotation: int
    offset: int


class RotatedLog:
    """``path`` with its older parts ``path.1`` (newest) … ``path.<keep>``.

    At most ``(keep + 1) * limit_bytes`` and what is written between two calls of :meth:`rotate`.
    """

    def __init__(
        self, path: Path, limit_bytes: int = ROTATE_AT_BYTES, keep: int = KEEP_OLD
    ) -> None:
        self.path = path
        self._limit = limit_bytes
        self._keep = keep
        self._rotation = 0

    def open_append(self) -> int:
        """A descriptor for a child's stdout and stderr; the caller closes its own after the start.

        Raises:
            OSError: the file can't be made.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(self.path, flags, 0o600)

    def _old(self, age: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{age}")

    def rotate(self, dropping: Dropping = unseen) -> bool:
        """Rotate if the file is over its limit; whether it was."""
        try:
            if self.path.stat().st_size <= self._limit:
                return False
        except FileNotFoundError:
            return False
        beside = self.path.with_name(f"{self.path.name}.partial")
        try:
            self._move(beside, dropping)
        finally:
            beside.unlink(missing_ok=True)  # of a full disk it would take the last bytes
        self._rotation += 1
        return True

    def _move(self, beside: Path, dropping: Dropping) -> None:
        with self.path.open("rb+") as source, beside.open("wb") as copy:
            # Readers see the parts as they were, until all is copied.
            shutil.copyfileobj(source, copy, CHUNK_BYTES)
            oldest = self._old(self._keep) if self._keep else self.path
            with dropping(oldest.stat().st_size if oldest.exists() else 0):
                for age in range(self._keep - 1, 0, -1):
                    if self._old(age).exists():
                        self._old(age).replace(self._old(age + 1))
                while more := source.read(CHUNK_BYTES):
                    copy.write(more)
                copy.flush()
                if self._keep > 0:
                    beside.replace(self._old(1))
                source.truncate(0)

    def _parts(self) -> list[Path]:
        """Existing parts, oldest first."""
        olds = [self._old(age) for age in range(self._keep, 0, -1)]
        return [path for path in [*olds, self.path] if path.exists()]

    def tail(self, lines: int, limit_bytes: int = 1024 * 1024) -> str:
        """The last ``lines`` lines over all parts, at most the last ``limit_bytes`` of them.

        Bytes that are no UTF-8 are shown as U+FFFD; a last line without its end counts as a line.
        """
        data = b""
        for path in reversed(self._parts()):
            data = _last_bytes(path, limit_bytes - len(data)) + data
            if len(data) >= limit_bytes or data.count(b"\n") > lines:
                break
        kept = data.splitlines(keepends=True)[-lines:] if lines > 0 else []
        return b"".join(kept).decode("utf-8", "replace")

    def oldest(self) -> Position:
        """The beginning of everything that is kept: a reader from here sees all so far."""
        return Position(self._rotation - (len(self._parts()) - self.path.exists()), 0)

    def read_from(self, position: Position) -> tuple[bytes, Position]:
        """What was written since ``position``, at most :data:`CHUNK_BYTES`, and the new position.

        Goes on in the rotated parts; a follower that fell behind by more than ``keep`` of them goes
        on at the oldest. Empty at the end.
        """
        while True:
            age = self._rotation - position.rotation
            if age > self._keep:
                position = Position(self._rotation - self._keep, 0)
                continue
            path = self.path if age <= 0 else self._old(age)
            data = _read_at(path, position.offset)
            if data:
                return data, Position(position.rotation, position.offset + len(data))
            if age <= 0:
                return b"", self._after_foreign_truncation(position)
            position = Position(position.rotation + 1, 0)

    def _after_foreign_truncation(self, position: Position) -> Position:
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            size = 0
        return position if position.offset <= size else Position(self._rotation, 0)


def _last_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - count))
        return file.read(count)


def _read_at(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(CHUNK_BYTES)
    except FileNotFoundError:
        return b""
