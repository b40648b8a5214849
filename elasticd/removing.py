"""Removes a file, or a folder and whatever a script may have put in it.

``shutil.rmtree`` recurses, and holds a descriptor for each folder that it is in: folders in each
other by the thousand end it. Here two descriptors are open at a time, and three while a folder is
listed. A path may be longer than the system takes.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_Identity = tuple[int, int]


def remove_tree(path: Path) -> None:
    """Remove a folder with all that is in it, also where it was closed; of a link or a file just
    that. Nothing is done if it isn't there.

    Raises:
        OSError: why the first of what is left could not be removed.
    """
    try:
        fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    removal = _Removal(path, fd)
    try:
        removal.run()
    finally:
        os.close(removal.fd)
    if removal.failure is not None:
        raise removal.failure


def remove_file(path: Path) -> str:
    """Remove a file or a link; why it stays, if it does. For what is in a daemon's folders: each of
    them may be a link to another disk, and one that is read-only or broken by then is no reason for
    the daemon to end."""
    try:
        path.lstat()  # a read-only disk says of what isn't there, too, that it is read-only
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class _Level:
    name: str
    identity: _Identity
    folders: list[str]
    """That are still to be removed in it."""


class _Removal:
    """One of ``path``; it goes down into a folder and up again, so that one is open at a time."""

    def __init__(self, path: Path, fd: int) -> None:
        """``fd`` is the folder above."""
        self.fd = fd
        self.failure: OSError | None = None
        self._path, self._top = path, _identity(fd)
        self._levels: list[_Level] = []

    def run(self) -> None:
        self._remove(self._path.name)
        while self._levels:
            folders = self._levels[-1].folders
            if folders:
                self._go_down(folders.pop())
            else:
                self._go_up()

    def _remove(self, name: str) -> None:
        """What the path names, which may be anything."""
        try:
            if stat.S_ISDIR(os.lstat(name, dir_fd=self.fd).st_mode):
                self._go_down(name)
            else:
                os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._note(error, name)

    def _go_down(self, name: str) -> None:
        try:
            inner = self._open(name)
        except FileNotFoundError:
            return
        except OSError as error:
            self._note(error, name)
            return
        os.close(self.fd)
        self.fd = inner
        self._levels.append(_Level(name, _identity(inner), []))
        try:
            self._levels[-1].folders.extend(self._clear())
        except OSError as error:
            self._note(error, "")

    def _open(self, name: str) -> int:
        """A descriptor of a folder, which a script may have closed even to itself."""
        try:
            inner = os.open(name, _FOLDER, dir_fd=self.fd)
        except PermissionError:
            os.chmod(name, stat.S_IRWXU, dir_fd=self.fd)
            inner = os.open(name, _FOLDER, dir_fd=self.fd)
        try:
            if os.fstat(inner).st_mode & stat.S_IRWXU != stat.S_IRWXU:
                os.fchmod(inner, stat.S_IRWXU)
        except OSError:
            os.close(inner)
            raise
        return inner

    def _clear(self) -> list[str]:
        """Remove the files of the folder that is open; returns its folders."""
        folders = []
        with os.scandir(self.fd) as found:
            entries = list(found)  # some disks lose their place in a folder that changes
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                else:
                    os.unlink(entry.name, dir_fd=self.fd)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._note(error, entry.name)
        return folders

    def _go_up(self) -> None:
        """Leave the folder that is open, and remove it."""
        outer = os.open("..", _FOLDER, dir_fd=self.fd)
        os.close(self.fd)
        self.fd = outer
        level = self._levels.pop()
        if _identity(outer) != (self._levels[-1].identity if self._levels else self._top):
            raise OSError(f"{self._path}: a folder in it was moved away while it was removed")
        try:
            os.rmdir(level.name, dir_fd=outer)
        except OSError as error:
            self._note(error, level.name)

    def _note(self, error: OSError, name: str) -> None:
        if self.failure is None:
            inside = [level.name for level in self._levels[1:]]
            named = self._path.joinpath(*inside, name) if self._levels else self._path
            self.failure = OSError(error.errno, error.strerror, str(named))


def _identity(fd: int) -> _Identity:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
