"""Jobs' folders by content hash, as they were submitted: kept, asked for, unpacked."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import os
import shutil
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import structlog

from elasticd import archive
from elasticd.core.words import effects as e
from elasticd.core.words.bulk import WantArchive
from elasticd.core.words.records import JobRecord
from elasticd.errors import ElasticdError, OperationError, ProtocolError
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.network.retries import attempts
from elasticd.shell.storage.durable import write_durable
from elasticd.shell.storage.namelessfile import nameless_file, slices
from elasticd.types import JobId

Write = Callable[[Path, bytes], None]

log = structlog.get_logger(__name__)


class Archives:
    """One node's archives, in a folder."""

    def __init__(
        self,
        folder: Path,
        neighbours: Neighbours,
        work_folder: Callable[[JobId], Path],
        post: Callable[[e.Event], None],
        write: Write = write_durable,
    ) -> None:
        """``work_folder``: where a job's archive is unpacked."""
        self._folder, self._neighbours, self._write = folder, neighbours, write
        self._work_folder, self._post = work_folder, post
        self.prepare: Callable[[JobId], Awaitable[None]] = _nothing
        """What else a job's first trainer here must find."""
        self._storing = asyncio.Lock()
        self._changing = threading.Lock()
        """In threads: a cancelled writer goes on, and the name beside an archive is fixed."""
        self._held: Counter[str] = Counter()
        self._trusted: set[JobId] = set()
        """Jobs whose working folders were compared with their archives since this start."""
        folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def held(self, digest: str) -> Iterator[None]:
        """Nobody removes that archive meanwhile: its job is about to be known."""
        self._held[digest] += 1
        try:
            yield
        finally:
            self._held[digest] -= 1
            self._held += Counter()  # without those that nobody holds

    async def keep(self, data: bytes, digest: str) -> None:
        """Store a submitted job's archive. One at a time, the others wait.

        Raises:
            ProtocolError: it is not what its digest says.
            OSError: the disk refuses.
        """
        async with self._storing:
            await asyncio.to_thread(self._keep, data, digest)

    def _keep(self, data: bytes, digest: str) -> None:
        if archive.digest(data) != digest:
            raise ProtocolError("the archive's digest does not match")
        with self._changing:
            self._write(self._folder / f"{digest}.tar", data)

    def open(self, digest: str) -> int:
        """A descriptor of an archive, the caller's to close. Blocks.

        Raises:
            ProtocolError: that is no digest.
            OSError: it isn't here.
        """
        name = f"{digest}.tar"
        if "/" in name:
            raise ProtocolError("bad digest")
        return os.open(self._folder / name, os.O_RDONLY)

    async def remove(self, digest: str, used: Callable[[], bool]) -> None:
        """Unless a job needs it (``used``), or one that is about to be known. None is stored
        meanwhile.

        Raises:
            OSError: the disk refuses.
        """
        async with self._storing:
            if not self._held[digest] and not used():
                await asyncio.to_thread(self._remove, digest)

    def _remove(self, digest: str) -> None:
        with self._changing:
            (self._folder / f"{digest}.tar").unlink(missing_ok=True)

    async def ensure(self, record: JobRecord) -> None:
        """Have a job's archive here, and its working folder."""
        try:
            folder = self._work_folder(record.id)
            trusted = record.id in self._trusted and await asyncio.to_thread(folder.exists)
            if not trusted:
                data = await self._sound(record.archive)
                await asyncio.to_thread(_unpacked, data, folder)
                self._trusted.add(record.id)
        except (ElasticdError, OSError) as error:
            self._post(e.ArchiveReady(record.id, False, str(error)))
            return
        await self.prepare(record.id)
        self._post(e.ArchiveReady(record.id, True, ""))

    async def _sound(self, digest: str) -> bytes:
        """An archive's bytes. A power cut, or a bad disk, may have left others under its name."""
        data = await asyncio.to_thread(self._read, digest)
        return await self._ask_around(digest) if data is None else data

    def _read(self, digest: str) -> bytes | None:
        path = self._folder / f"{digest}.tar"
        if not path.exists():
            return None
        data = path.read_bytes()
        if archive.digest(data) == digest:
            return data
        log.warning("an archive is damaged, and fetched again", path=str(path))
        with self._changing:
            path.unlink(missing_ok=True)
        return None

    async def _ask_around(self, digest: str) -> bytes:
        """Fetch an archive from whichever peer has it; the submitter may have died since."""
        async for attempt in attempts():
            with attempt:
                data = await self._ask_once(digest)
        return data

    async def _ask_once(self, digest: str) -> bytes:
        reasons = ["no peer is connected"]
        for node in self._neighbours.connected():
            fd = nameless_file()
            try:
                await self._neighbours.fetch(node, WantArchive(digest), fd)
                data = await asyncio.to_thread(_whole, os.dup(fd))
                await self.keep(data, digest)
                return data
            except (ElasticdError, OSError) as error:
                reasons.append(f"{node}: {error}")
            finally:
                os.close(fd)
        raise OperationError(f"archive {digest[:12]}: {'; '.join(reasons)}")


def _whole(fd: int) -> bytes:
    """All of a file, which is closed."""
    try:
        os.lseek(fd, 0, os.SEEK_SET)
        return b"".join(slices(fd))
    finally:
        os.close(fd)


def _unpacked(data: bytes, folder: Path) -> None:
    """Have an archive in ``folder``, which a power cut may have emptied."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists():
        if archive.is_unpacked(data, folder):
            return
        log.warning("a working folder is damaged, and unpacked again", path=str(folder))
        shutil.rmtree(folder)
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.*"):
        shutil.rmtree(left)  # of an unpacking that was interrupted
    archive.unpack(data, folder)


async def _nothing(job: JobId) -> None:
    pass
