"""The files of an event log: one for each job, which grow, and some that are replaced."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from elasticd.checkpoints.sequential import write_all
from elasticd.errors import naming
from elasticd.shell.inorder import EventDisk
from elasticd.shell.storage.durable import no_room, write_whole
from elasticd.shell.storage.rewriting import Rewriting

SUFFIX = ".events"

log = structlog.get_logger(__name__)

T = TypeVar("T")


class EventFiles:
    """All is done by ``disk``, in this order."""

    def __init__(self, folder: Path, disk: EventDisk) -> None:
        self.folder = folder
        self.disk = disk
        self._rewriting = Rewriting(disk.aside)

    def path(self, name: str) -> Path:
        return self.folder / (name + SUFFIX)

    def append(self, name: str, data: bytes) -> None:
        """Behind what there is."""
        self.disk.do(partial(self._append, self.path(name), data))

    def replace(self, name: str, content: Callable[[], bytes]) -> None:
        """All of it; ``content`` is asked for it beside the loop. On a disk that has no room it
        stays as it was."""
        self.disk.do(partial(self._replace, self.path(name), content))

    def remove(self, name: str) -> None:
        """All of it, if there is anything."""
        self.disk.do(partial(self._remove, self.path(name)))

    def rewrite(self, name: str, content: Callable[[], bytes]) -> None:
        """All that there is now, in a thread; what is appended meanwhile stays behind it."""
        self.disk.do(partial(self._rewriting.begin, self.path(name), content))

    def read(self, name: str, read: Callable[[Path], T], then: Callable[[T], object]) -> None:
        """What is in it now."""
        self.disk.do(partial(read, self.path(name)), then)

    def read_now(self, name: str, read: Callable[[Path], T]) -> T:
        """With all that was appended so far. Blocks."""
        self.disk.settled()
        return read(self.path(name))

    def _append(self, path: Path, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
        try:
            with naming(path):
                write_all(fd, data)
        finally:
            os.close(fd)
        self._rewriting.appended(path, data)

    def _replace(self, path: Path, content: Callable[[], bytes]) -> None:
        try:
            write_whole(path, content())
        except OSError as error:
            if not no_room(error):
                raise
            log.warning("a list of dropped events is not kept", path=str(path), reason=str(error))

    def _remove(self, path: Path) -> None:
        self._rewriting.removed(path)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:  # at the next start it is tried again
            log.warning("events of a forgotten job stay", path=str(path), reason=error.strerror)
