"""Jobs' folders by content hash, as they were submitted: kept, asked for, unpacked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

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
        path = self._folder / f"{record.archive}.tar"
        try:
            if not path.exists():
                await self._ask_around(record.archive)
            folder = self._work_folder(record.id)
            if not folder.exists():
                data = await asyncio.to_thread(path.read_bytes)
                folder.parent.mkdir(parents=True, exist_ok=True)
                await asyncio.to_thread(archive.unpack, data, folder)
        except (ElasticdError, OSError) as error:
            self._post(e.ArchiveReady(record.id, False, str(error)))
            return
        await self.prepare(record.id)
        self._post(e.ArchiveReady(record.id, True, ""))

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


async def _nothing(job: JobId) -> None:
    pass
