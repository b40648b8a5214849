"""Where a process's temporary files go: on Linux a folder of its own, which goes with it; on a Mac
that which the account has for itself.

A trainer that is killed removes nothing of what it has put there: dumps of the compiler, folders of
``multiprocessing``, half a download. In a folder that all share that would stay for ever. MLX looks
for its compiled kernels there, too: a link leads to those that the node keeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import stat
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from elasticd.errors import OperationError
from elasticd.removing import remove_tree
from elasticd.shell.children.files import ChildFiles, made

KERNELS = "mlx"
"""As MLX names the folder."""
LINKS_PREFIX = f"elasticd-{os.getuid()}-"
_NAME_LETTERS = 12
_SOCKET_BYTES = len("/pymp-XXXXXXXX/listener-XXXXXXXX")
"""What ``multiprocessing`` adds for its sockets."""
_MOST_BYTES = {"darwin": 103}
_USUAL_MOST_BYTES = 107
"""Of a socket's path, on Linux."""

_MANAGED = "INVOCATION_ID"
"""systemd gives it to all that a manager of its has started, which the account's runtime folder
outlives. That of who has just logged in goes when he logs out."""

_USER_TEMP_DIR = 65537
"""Darwin's name of it for confstr(3), unistd.h."""

log = structlog.get_logger(__name__)


def own_runtime_folder(variables: Mapping[str, str] = os.environ) -> Path | None:
    """A short one where nobody but this account gets in, and no cleaner removes what is old; None:
    there is none that lasts as long as the daemon."""
    given = variables.get("XDG_RUNTIME_DIR", "")
    if not given.startswith("/") or _MANAGED not in variables:
        return None
    try:
        found = os.lstat(given)
    except OSError:
        return None
    ours = found.st_uid == os.getuid() and not found.st_mode & 0o077
    return Path(given) if ours and stat.S_ISDIR(found.st_mode) else None


def own_temporary_folder(
    given: str | None = None, ask: Callable[[int], str | None] = os.confstr
) -> str:
    """Of a Mac's account: TMPDIR (``given``), or what macOS has made for the account where a daemon
    has no TMPDIR, as launchd starts it, or one in which another account may write: it could lay its
    own kernels there. Empty: there is none."""
    given = os.environ.get("TMPDIR", "") if given is None else given
    if _is_own(given):
        return given
    try:
        found = (ask(_USER_TEMP_DIR) or "").rstrip("/")
    except (OSError, ValueError):
        return ""
    return found if _is_own(found) else ""


def _is_own(folder: str) -> bool:
    """Whether nobody else may write in it."""
    try:
        found = os.stat(folder)
    except OSError:
        return False
    ours = found.st_uid == os.getuid() and not found.st_mode & 0o022
    return ours and stat.S_ISDIR(found.st_mode)


@dataclass(frozen=True, slots=True)
class TemporaryFolders:
    """Those of a node's processes.

    Attributes:
        daemons: on a Mac the account's own, which all share; empty: there is none, and each has one
            in the home as on Linux.
        short: where links may be made that are short.
        runtime: where they are rather made on Linux while that is there, if they are short enough.
            It goes at a log-out, if the daemon was started by hand by what systemd started.
    """

    files: ChildFiles
    platform: str = sys.platform
    daemons: str = field(default_factory=own_temporary_folder)
    short: Path = Path("/tmp")
    runtime: Path | None = field(default_factory=own_runtime_folder)

    def of_child(self, nonce: str) -> str:
        """TMPDIR of the child with that nonce, made.

        Raises:
            OperationError: it can't be made.
        """
        return self.made(self._folder(nonce))

    def made(self, folder: Path) -> str:
        """TMPDIR of a process that may have ``folder``: a path to that, made. macOS has one for
        each account, and clears it. Python puts sockets into it: where its path is too long for
        that, it goes by a short link.

        Raises:
            OperationError: it can't be made.
        """
        if self._is_shared:
            return str(self._shortened(Path(self.daemons), 0))
        kernels = made(self.files.cache_folder() / KERNELS, self.files.home)
        made(folder)
        try:
            with contextlib.suppress(FileExistsError):
                (folder / KERNELS).symlink_to(kernels.absolute())
        except OSError as error:
            raise OperationError(f"{folder}: nothing can be made in it: {error.strerror}") from None
        return str(self._shortened(folder.parent, 1 + len(folder.name)) / folder.name)

    @contextlib.contextmanager
    def lent(self, folder: Path) -> Iterator[str]:
        """As :meth:`made`, of a folder in one of its own, which goes with that: so does the link.

        Raises:
            OperationError: it can't be made.
        """
        try:
            yield self.made(folder)
        finally:
            if not self._is_shared:  # else others go by it
                link = self._name(folder.parent, 1 + len(folder.name))
                _unlink(link, folder.parent.absolute())

    async def remove(self, nonce: str) -> None:
        """That child has ended, or was never started."""
        await asyncio.to_thread(_remove, [self._folder(nonce)])

    def sweep(self, nonces: Iterable[str]) -> Coroutine[Any, Any, None]:
        """Remove the folders that there are now, but for those of the children with these
        nonces."""
        kept = {self._folder(nonce) for nonce in nonces}
        try:
            left = [path for path in self._all.iterdir() if path not in kept]
        except OSError:  # there are none; what has their place is told of when a child starts
            left = []
        return asyncio.to_thread(_remove, left)

    @property
    def _is_shared(self) -> bool:
        return self.platform == "darwin" and bool(self.daemons)

    @property
    def _all(self) -> Path:
        return self.files.home / "cache" / "tmp"

    def _folder(self, nonce: str) -> Path:
        """A daemon that takes the child over finds it by the nonce, which nobody else is told."""
        return self._all / hashlib.sha256(nonce.encode()).hexdigest()[:_NAME_LETTERS]

    def look_after(self) -> str:
        """Make the link again that processes of this node go by, if it is gone, and give it a new
        time: cleaners of /tmp remove what is old. Returns its path if another account has taken
        that place; else nothing."""
        folder = Path(self.daemons) if self._is_shared else self._all
        more_bytes = 0 if self._is_shared else 1 + _NAME_LETTERS
        if not folder.is_dir() or self._has_room(folder, more_bytes):
            return ""
        link = self._name(folder, more_bytes)
        made = _link(link, folder.absolute())
        # Processes go by it that were started while there was no runtime folder.
        for each in {link, self.short / link.name}:
            _renew(each, folder.absolute())
        return str(link) if made is None and os.path.lexists(link) else ""

    def _shortened(self, folder: Path, more_bytes: int) -> Path:
        if self._has_room(folder, more_bytes):
            return folder
        return _link(self._name(folder, more_bytes), folder.absolute()) or folder

    def _has_room(self, folder: Path, more_bytes: int) -> bool:
        """Whether sockets can be made below so much more of a path."""
        most = _MOST_BYTES.get(self.platform, _USUAL_MOST_BYTES)
        return len(os.fsencode(folder.absolute())) + more_bytes + _SOCKET_BYTES <= most

    def _name(self, folder: Path, more_bytes: int) -> Path:
        """Of the link to it."""
        path = os.fsencode(folder.absolute())
        name = LINKS_PREFIX + hashlib.sha256(path).hexdigest()[:12]
        if self.platform != "darwin" and self.runtime is not None and self.runtime.is_dir():
            private = self.runtime / name
            if self._has_room(private, more_bytes):
                return private
        return self.short / name


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        try:
            remove_tree(folder)
        except OSError as error:
            log.warning("temporary files stay", path=str(folder), reason=str(error))


def dangling(short: Path = Path("/tmp")) -> list[Path]:
    """Such links of ours that lead nowhere any more: nobody takes them away."""
    try:
        own = sorted(short.glob(f"{LINKS_PREFIX}*"))
        return [each for each in own if each.is_symlink() and _is_ours(each) and not each.exists()]
    except OSError:
        return []


def _unlink(link: Path, to: Path) -> None:
    """Remove it, if it is our own and leads there."""
    with contextlib.suppress(OSError):
        if _leads(link, to):
            link.unlink()


def _renew(link: Path, to: Path) -> None:
    """Give it a new time, if it is our own and leads there."""
    with contextlib.suppress(OSError):
        if _leads(link, to):
            os.utime(link, follow_symlinks=False)


def _is_ours(link: Path) -> bool:
    return link.lstat().st_uid == os.getuid()


def _leads(link: Path, to: Path) -> bool:
    """Whether it is a link of our own that leads there."""
    return _is_ours(link) and link.readlink() == to


def _link(link: Path, to: Path) -> Path | None:
    """A link of our own that leads there; None: it can't be made, or another user has one."""
    try:
        with contextlib.suppress(FileExistsError):
            link.symlink_to(to)
        return link if _leads(link, to) else None
    except OSError:
        return None
