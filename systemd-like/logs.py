"""Log files of child processes: appended to by the child itself, rotated by the daemon.

The child holds the file open, so it can't be renamed away: rotation copies it and truncates it, as
logrotate's ``copytruncate`` does. The child's descriptor has O_APPEND, hence it goes on at the new
start. What is written between copy and truncation is carried over in a second look. That leaves a
window of microseconds, longer if the daemon is busy just then, whose bytes are lost: the price of
children that outlive their daemon and never wait for it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

ROTATE_AT_BYTES = 16 * 1024 * 1024
KEEP_OLD = 3
COPY_BYTES = 1024 * 1024

Dropping = Callable[[], AbstractContextManager[Callable[[int], object]]]
"""Entered while parts move; what it gives is told how many bytes go."""


def unseen() -> AbstractContextManager[Callable[[int], object]]:
    """Nobody counts what goes."""
    return nullcontext(lambda size_bytes: None)


class Rotated(NamedTuple):
    """That a log was rotated."""

    cut_bytes: int
    """What of it is in no part: more was written than is kept."""


class RotatedLog:
    """``path`` with its older parts ``path.1`` (newest) … ``path.<keep>``.

    The older parts have at most ``(keep + 1) * limit_bytes`` together, however much is written. One
    may have as much as ``keep`` of them. ``path`` has ``limit_bytes`` at most, and what is written
    between two calls of :meth:`rotate`.
    """

    def __init__(
        self, path: Path, limit_bytes: int = ROTATE_AT_BYTES, keep: int = KEEP_OLD
    ) -> None:
        self.path = path
        self._limit = limit_bytes
        self._keep = keep

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

    def rotate(self, dropping: Dropping = unseen) -> Rotated | None:
        """Rotate if the file is over its limit; None: it was not."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return None
        if size <= self._limit:
            return None
        beside = self.path.with_name(f"{self.path.name}.partial")
        try:
            cut = self._move(beside, max(0, size - self._keep * self._limit), dropping)
        finally:
            beside.unlink(missing_ok=True)  # of a full disk it would take the last bytes
        return Rotated(cut)

    def _move(self, beside: Path, begin: int, dropping: Dropping) -> int:
        """Make a part of what is there from ``begin`` on; returns how much is in no part."""
        most = (self._keep + 1) * self._limit
        with self.path.open("rb+", buffering=0) as source, beside.open("wb", buffering=0) as copy:
            # Readers see the parts as they were, until all is copied.
            source.seek(begin)
            _copy_rest(source, copy, most)
            with dropping() as count:
                count(self._make_room(most - copy.tell()))
                if self._keep:
                    beside.replace(self._old(1))
                whole = False
                try:
                    whole = _copy_rest(source, copy, most)
                finally:
                    # Who is at the end need not ask for it: that takes time, and more is written.
                    end = None if whole else os.fstat(source.fileno()).st_size
                    source.truncate(0)
                    end = source.tell() if end is None else end
                    count(cut := end - (copy.tell() if self._keep else 0))
        return cut

    def _make_room(self, left_bytes: int) -> int:
        """Let each old part be one older, but for the last and those that are beyond ``left_bytes``
        together; returns the bytes of these, which go."""
        gone, moves = 0, []
        for age in range(1, self._keep + 1):
            old = self._old(age)
            if not old.exists():
                continue
            size = old.stat().st_size
            left_bytes -= size
            if age == self._keep or left_bytes < 0:
                old.unlink()
                gone += size
            else:
                moves.append(age)
        for age in reversed(moves):
            self._old(age).replace(self._old(age + 1))
        return gone

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


def _copy_rest(source: io.FileIO, copy: io.FileIO, most_bytes: int) -> bool:
    """Copy what is left, while there are less than ``most_bytes`` there; whether it was all."""
    while copy.tell() < most_bytes:
        if not (data := source.read(COPY_BYTES)):
            return True
        while data:
            data = data[copy.write(data) :]
    return False


def _last_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - count))
        return file.read(count)
