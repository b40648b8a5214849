"""A process that ends, or a disk that fails, before one of its changes of files."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_CHANGES = ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.chmod")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Killed(BaseException):
    """The process is gone: nothing catches this."""


class _Watch:
    """What the interpreter tells of each call that changes files (sys.addaudithook), for ever."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.left, self.seen, self.thread = 0, 0, 0
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.error is None or threading.get_ident() != self.thread:
            return
        writes = event == "open" and bool((arguments[2] or 0) & _WRITING)
        if event not in _CHANGES and not writes:
            return
        self.seen += 1
        if self.seen == self.left or (self.seen > self.left and isinstance(self.error, Killed)):
            raise self.error


_watch: list[_Watch] = []


@contextmanager
def stopping_at(number: int, error: BaseException) -> Iterator[_Watch]:
    """The change ``number`` (from 1) of a file or folder in this thread raises ``error``, and all
    after it too if that is :class:`Killed`."""
    if not _watch:
        _watch.append(_Watch())
    (watch,) = _watch
    watch.left, watch.seen, watch.thread = number, 0, threading.get_ident()
    watch.error = error
    try:
        yield watch
    finally:
        watch.error = None
