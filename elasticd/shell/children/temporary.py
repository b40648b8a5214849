"""Where a process's temporary files go: on Linux a folder of its own, which goes with it.

A trainer that is killed removes nothing of what it has put there: dumps of the compiler, folders of
``multiprocessing``, half a download. In a folder that all share that would stay for ever. MLX looks
for its compiled kernels there, too: a link leads to those that the node keeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sys
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass
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

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TemporaryFolders:
    """Those of a node's processes.

    Attributes:
        daemons: the daemon's own TMPDIR; empty: it has none.
        short: where links may be made that are short.
    """

    files: ChildFiles
    platform: str = sys.platform
    daemons: str = os.environ.get("TMPDIR", "")
    short: Path = Path("/tmp")

    def of_child(self, nonce: str) -> str:
        """TMPDIR of the child with that nonce, made; empty: it has none.

        Raises:
            OperationError: it can't be made.
        """
        return self.made(self._folder(nonce))

    def made(self, folder: Path) -> str:
        """TMPDIR of a process that may have ``folder``: a path to that, made. macOS has one for
        each user, and clears it. Python puts sockets into it: where its path is too long for that,
        it goes by a short link.

        Raises:
            OperationError: it can't be made.
        """
        if self.platform == "darwin":
            return str(self._shortened(Path(self.daemons), 0)) if self.daemons else ""
        kernels = made(self.files.cache_folder() / KERNELS)
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
            if self.platform != "darwin":  # there it leads to the daemon's
                _unlink(self._name(folder.parent), folder.parent.absolute())

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
    def _all(self) -> Path:
        return self.files.home / "cache" / "tmp"

    def _folder(self, nonce: str) -> Path:
        """A daemon that takes the child over finds it by the nonce, which nobody else is told."""
        return self._all / hashlib.sha256(nonce.encode()).hexdigest()[:_NAME_LETTERS]

    def _shortened(self, folder: Path, more_bytes: int) -> Path:
        path = os.fsencode(folder.absolute())
        most = _MOST_BYTES.get(self.platform, _USUAL_MOST_BYTES)
        if len(path) + more_bytes + _SOCKET_BYTES <= most:
            return folder
        return _link(self._name(folder), folder.absolute()) or folder

    def _name(self, folder: Path) -> Path:
        """Of the link to it."""
        path = os.fsencode(folder.absolute())
        return self.short / (LINKS_PREFIX + hashlib.sha256(path).hexdigest()[:12])


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
