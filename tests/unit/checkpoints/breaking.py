"""A folder's disk that stops at one operation, and can lose its power then."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from elasticd.checkpoints.disk import Head
from elasticd.checkpoints.sequential import Chunk, write_all


class Killed(BaseException):
    """The process is gone: nothing catches this."""


@dataclass
class Pending:
    """A change of a folder that the disk may still forget. Paths follow renames of folders
    above."""

    folder: Path
    names: list[Path]
    undo: Callable[[list[Path]], None]
    forgotten: bool = False


class Disk:
    """A real folder without real fsyncs, which stops at one operation and then can lose its power.

    Operation ``stop`` (from 0) fails with ``error``; :class:`Killed` does that to all after it too,
    and a file being written then is half there. :meth:`cut_power` undoes changes of folders that
    were not synced.
    """

    def __init__(
        self, spare: Path, stop: int = -1, error: type[BaseException] | int = Killed
    ) -> None:
        self.operations = 0
        self._spare, self._stop, self._error = spare, stop, error
        self._pending: list[Pending] = []
        self._serial = itertools.count()

    def write(self, path: Path, chunks: Iterable[Chunk], head: Head | None = None) -> None:
        existed = path.exists()
        data = b"".join(bytes(chunk) for chunk in chunks)
        if head is not None:
            first = head()
            data = first + data[len(first) :]
        with path.open("wb") as file:
            if not existed:
                self._remember(path.parent, [path], lambda names: names[0].unlink(missing_ok=True))
            stopped = self._stopped()
            write_all(file.fileno(), data[: len(data) // 2] if stopped else data)
            self._fail_if(stopped)

    def rename(self, old: Path, new: Path) -> None:
        self._fail_if(self._stopped())
        saved = self._save(new) if new.is_file() else None

        def undo(names: list[Path]) -> None:
            os.rename(names[1], names[0])
            if saved is not None:
                shutil.copy(saved, names[1])

        if old.is_dir():
            self._move(old, new)
        os.replace(old, new)
        self._remember(old.parent, [old, new], undo)

    def sync_folder(self, folder: Path) -> None:
        self._fail_if(self._stopped())
        self._pending = [pending for pending in self._pending if pending.folder != folder]

    def order_folder(self, folder: Path) -> None:
        """As on Linux, where it is the same."""
        self.sync_folder(folder)

    def make_folder(self, folder: Path) -> None:
        self._fail_if(self._stopped())
        folder.mkdir()
        self._remember(folder.parent, [folder], lambda names: shutil.rmtree(names[0]))

    def remove_file(self, path: Path) -> None:
        self._fail_if(self._stopped())
        if path.exists():
            saved = self._save(path)
            path.unlink()
            self._remember(path.parent, [path], lambda names: _restore(saved, names[0]))

    def remove_folder(self, folder: Path) -> None:
        """Not in one go: a kill leaves half of it."""
        stopped = self._stopped()
        if folder.exists():
            files = sorted(folder.iterdir())
            for file in files[: len(files) // 2] if stopped else files:
                file.unlink()
            self._fail_if(stopped)
            folder.rmdir()
        self._fail_if(stopped)

    def cut_power(self, rng: random.Random | None) -> None:
        """Forget what wasn't synced: all of it or, with ``rng``, of each folder some of the
        latest."""
        for folder in sorted({pending.folder for pending in self._pending}):
            changes = [pending for pending in self._pending if pending.folder == folder]
            share = 1.0 if rng is None else rng.choice([0.0, 0.5, 1.0])
            for pending in changes[len(changes) - round(share * len(changes)) :]:
                pending.forgotten = True
        while self._pending:
            pending = self._pending.pop()
            if pending.forgotten:
                pending.undo(pending.names)
                if len(pending.names) == 2 and pending.names[0].is_dir():
                    self._move(pending.names[1], pending.names[0])

    def _stopped(self) -> bool:
        number, self.operations = self.operations, self.operations + 1
        return number == self._stop or (self._error is Killed and number > self._stop >= 0)

    def _fail_if(self, stopped: bool) -> None:
        if not stopped:
            return
        if isinstance(self._error, int):
            raise OSError(self._error, os.strerror(self._error))
        raise self._error

    def _save(self, path: Path) -> Path:
        return Path(shutil.copy(path, self._spare / str(next(self._serial))))

    def _remember(
        self, folder: Path, names: list[Path], undo: Callable[[list[Path]], None]
    ) -> None:
        self._pending.append(Pending(folder, names, undo))

    def _move(self, old: Path, new: Path) -> None:
        def moved(path: Path) -> Path:
            return new / path.relative_to(old) if path.is_relative_to(old) else path

        for pending in self._pending:
            if pending.folder.is_relative_to(old):
                pending.folder = moved(pending.folder)
                pending.names = [moved(path) for path in pending.names]


def _restore(saved: Path, path: Path) -> None:
    # A folder that was removed above is gone with all that was in it.
    if path.parent.is_dir():
        shutil.copy(saved, path)
