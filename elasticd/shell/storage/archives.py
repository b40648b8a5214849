"""Jobs' folders by content hash, as they were submitted: kept, asked for, unpacked."""

from __future__ import annotations

import asyncio
import glob
import os
import shutil
from collections.abc import Awaitable, Callable
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

log = structlog.get_logger(__name__)


class Archives:
    """One node's archives, in a folder."""

    def __init__(
        self,
        folder: Path,
        neighbours: Neighbours,
        work_folder: Callable[[JobId], Path],
        post: Callable[[e.Event], None],
    ) -> None:
        """``work_folder``: where a job's archive is unpacked."""
        self._folder, self._neighbours = folder, neighbours
        self._work_folder, self._post = work_folder, post
        self.prepare: Callable[[JobId], Awaitable[None]] = _nothing
        """What else a job's first trainer here must find."""
        self._trusted: set[JobId] = set()
        """Jobs whose working folders were compared with their archives since this start."""
        folder.mkdir(parents=True, exist_ok=True)

    def keep(self, data: bytes, digest: str) -> None:
        """Store a submitted job's archive.

        Raises:
            ProtocolError: it is not what its digest says.
        """
        if archive.digest(data) != digest:
            raise ProtocolError("the archive's digest does not match")
        write_durable(self._folder / f"{digest}.tar", data)

    def open(self, digest: str) -> int:
        """A descriptor of an archive, the caller's to close.

        Raises:
            ProtocolError: that is no digest.
            OSError: it isn't here.
        """
        name = f"{digest}.tar"
        if "/" in name:
            raise ProtocolError("bad digest")
        return os.open(self._folder / name, os.O_RDONLY)

    def remove(self, digest: str) -> None:
        """No job needs it any more."""
        (self._folder / f"{digest}.tar").unlink(missing_ok=True)

    async def ensure(self, record: JobRecord) -> None:
        """Have a job's archive here, and its working folder."""
        try:
            folder = self._work_folder(record.id)
            if record.id not in self._trusted or not folder.exists():
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
        path = self._folder / f"{digest}.tar"
        if path.exists():
            data = await asyncio.to_thread(path.read_bytes)
            if await asyncio.to_thread(archive.digest, data) == digest:
                return data
            log.warning("an archive is damaged, and fetched again", path=str(path))
            path.unlink()
        await self._ask_around(digest)
        return await asyncio.to_thread(path.read_bytes)

    async def _ask_around(self, digest: str) -> None:
        """Fetch an archive from whichever peer has it; the submitter may have died since."""
        async for attempt in attempts():
            with attempt:
                await self._ask_once(digest)

    async def _ask_once(self, digest: str) -> None:
        reasons = ["no peer is connected"]
        for node in self._neighbours.connected():
            fd = nameless_file()
            try:
                await self._neighbours.fetch(node, WantArchive(digest), fd)
                os.lseek(fd, 0, os.SEEK_SET)
                self.keep(b"".join(slices(fd)), digest)
                return
            except (ElasticdError, OSError) as error:
                reasons.append(f"{node}: {error}")
            finally:
                os.close(fd)
        raise OperationError(f"archive {digest[:12]}: {'; '.join(reasons)}")


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
