"""Jobs' folders by content hash, as they were submitted: kept, asked for, unpacked."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import os
import re
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from pathlib import Path

import structlog

from elasticd import archive
from elasticd.archive import MAX_ARCHIVE_BYTES
from elasticd.core.words import effects as e
from elasticd.core.words.bulk import KeepArchive, WantArchive, WantArchiveList
from elasticd.core.words.codec import UNKNOWN
from elasticd.core.words.records import JobRecord
from elasticd.errors import ElasticdError, OperationError, ProtocolError
from elasticd.removing import remove_file, remove_tree
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.network.retries import attempts
from elasticd.shell.storage.arrival import Arrival, Settle, digest_of
from elasticd.shell.storage.durable import PARTIAL_SUFFIX, settle
from elasticd.shell.storage.namelessfile import nameless_file
from elasticd.shell.storage.places import Places
from elasticd.shell.storage.spreading import Spread, spread
from elasticd.shell.tasks import reason, tell
from elasticd.types import JobId, NodeId

MAX_COPYING = 4
"""So many archives are fetched at once for other nodes."""
MAX_WAITING = 32
"""So many more wait; then others are asked to keep a copy."""
ASKING_SECONDS = 2.0
"""Others are asked in vain for so long until people are told why. Then they are asked again."""
KNOWN_SECONDS = 60.0
"""After so long the job of an archive that was kept for another node is known here."""
STRAY_LOOKS = 7
"""One that no job has goes when it was seen by so many looks in a row: in an hour, however the
clock steps and for how long this machine sleeps, any node that knows of a job has told it."""
_DIGEST = re.compile(r"[\w-]{1,128}", re.ASCII)
"""What may be a name in a folder: it came from elsewhere."""

log = structlog.get_logger(__name__)


class Archives:
    """One node's archives, in a folder."""

    def __init__(
        self,
        folder: Path,
        neighbours: Neighbours,
        work_folder: Callable[[JobId], Path],
        post: Callable[[e.Event], None],
        settle: Settle = settle,
        asking_seconds: float = ASKING_SECONDS,
    ) -> None:
        """``work_folder``: where a job's archive is unpacked."""
        self._asking_seconds = asking_seconds
        self._folder, self._neighbours, self._settle = folder, neighbours, settle
        self._work_folder, self._post = work_folder, post
        self.prepare: Callable[[JobId], Awaitable[None]] = _nothing
        """What else a job's first trainer here must find."""
        self._storing = asyncio.Lock()
        busy = "other archives are being copied to it"
        self._copying = Places(MAX_COPYING, MAX_WAITING, busy)
        self._changing = threading.Lock()
        """In threads: a cancelled writer goes on."""
        self._held: Counter[str] = Counter()
        self._strays: dict[str, int] = {}
        """Those that no job had at the last look, and how many looks have found so."""
        self._trusted: set[JobId] = set()
        """Jobs whose working folders were compared with their archives since this start."""
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(f"*{PARTIAL_SUFFIX}"):
            remove_file(left)  # of a daemon that was killed

    @contextlib.contextmanager
    def held(self, digest: str) -> Iterator[None]:
        """Nobody removes that archive meanwhile: its job is about to be known."""
        self._hold(digest)
        try:
            yield
        finally:
            self._release(digest)

    def _hold(self, digest: str) -> None:
        self._held[digest] += 1
        self._strays.pop(digest, None)

    def _release(self, digest: str) -> None:
        self._held[digest] -= 1
        self._held += Counter()  # without those that nobody holds

    @contextlib.contextmanager
    def arrival(self) -> Iterator[Arrival]:
        """A file for an archive that comes now. It goes unless :meth:`take_in` has kept it."""
        arriving = Arrival(self._folder, self._settle)
        try:
            yield arriving
        finally:
            # In a thread: one that was left behind may still be at it.
            asyncio.get_running_loop().run_in_executor(None, arriving.discard)

    async def take_in(self, arriving: Arrival, digest: str) -> None:
        """Keep what has arrived, durably. One at a time, the others wait.

        Raises:
            ProtocolError: it is not what its digest says.
            OSError: the disk refuses.
        """
        async with self._storing:
            await asyncio.to_thread(self._take_in, arriving, digest)

    def _take_in(self, arriving: Arrival, digest: str) -> None:
        with self._changing:
            arriving.keep(digest, self._path(digest))

    async def keep(self, data: bytes, digest: str) -> None:
        """Store a submitted job's archive. Raises as :meth:`take_in`."""
        with self.arrival() as arriving:
            await asyncio.to_thread(arriving.write, data)
            await self.take_in(arriving, digest)

    async def keep_copy(self, digest: str, source: NodeId) -> None:
        """For another node that has just been sent a job: have its archive here, too.

        Raises:
            OperationError, ProtocolError: ``source`` doesn't give it, or too many wait.
            OSError: the disk refuses.
        """
        await self._copying.begin()
        try:
            self._hold(digest)
            # Its job is not known before the other node has its answer.
            asyncio.get_running_loop().call_later(KNOWN_SECONDS, self._release, digest)
            async with self._storing:  # one that is being removed just now is not here any more
                here = await asyncio.to_thread(self._is_sound, digest)
            if not here:
                await self._fetch(digest, source)
        finally:
            self._copying.end()

    async def have(self, digest: str) -> None:
        """Have an archive here that a job needs; one that is here is not read for that.

        Raises:
            OperationError: nobody gives it.
            OSError: the disk refuses.
        """
        if not await asyncio.to_thread(self._path(digest).exists):
            await self._ask_once(digest)

    async def names(self) -> frozenset[str]:
        """The digests of those that are here, as their files' names say."""
        return frozenset(await asyncio.to_thread(_names, self._folder))

    async def names_at(self, nodes: Sequence[NodeId]) -> dict[NodeId, frozenset[str]]:
        """The same of other nodes; without those that don't say it soon, as older ones."""
        found: dict[NodeId, frozenset[str]] = {}

        async def ask(node: NodeId) -> None:
            fd = nameless_file()
            try:
                await self._neighbours.fetch(node, WantArchiveList(), fd)
                found[node] = frozenset(await asyncio.to_thread(_lines, fd))
            finally:
                os.close(fd)

        await spread(ask, nodes, len(nodes))
        return found

    async def spread(
        self, digest: str, source: NodeId, nodes: Sequence[NodeId], count: int
    ) -> Spread:
        """Have ``count`` other nodes keep an archive that ``source`` has. Which do, and why not
        more."""

        async def ask(node: NodeId) -> None:
            fd = nameless_file()
            try:
                await self._neighbours.fetch(node, KeepArchive(digest, source), fd)
            except OperationError as error:
                if UNKNOWN in str(error):
                    error = OperationError("its elasticd is older, and takes no copies")
                raise error from None
            finally:
                os.close(fd)

        return await spread(ask, nodes, count)

    def open(self, digest: str) -> int:
        """A descriptor of an archive, the caller's to close. Blocks.

        Raises:
            ProtocolError: that is no digest.
            OSError: it isn't here.
        """
        return os.open(self._path(digest), os.O_RDONLY)

    def _path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise ProtocolError("bad digest")
        return self._folder / f"{digest}.tar"

    async def remove(self, digest: str, used: Callable[[], bool]) -> tuple[bool, str]:
        """Unless a job needs it (``used``), or one that is about to be known. None is stored
        meanwhile.

        Returns: whether that is done, or else is to be asked for again; and why the disk refuses,
            if it does. It may be another disk than the home's, so that is no reason to end.
        """
        async with self._storing:
            if self._held[digest]:
                return False, ""
            why = "" if used() else await asyncio.to_thread(self._remove, digest)
            return not why, why

    async def remove_strays(self, used: Callable[[], Collection[str]]) -> list[str]:
        """Remove what submissions have left that came to nothing, :data:`STRAY_LOOKS` looks after
        that. ``used``: what jobs have.

        Returns: why some of it stays.
        """
        try:
            here, needed = await self.names(), used()
        except OSError as error:
            return [str(error)]
        looks = {digest: self._strays.get(digest, 0) + 1 for digest in here}
        self._strays = {
            digest: count
            for digest, count in looks.items()
            if digest not in needed and not self._held[digest]
        }
        stay: list[str] = []
        for digest in [each for each, count in self._strays.items() if count >= STRAY_LOOKS]:

            def came(digest: str = digest) -> bool:
                return digest in used() or digest not in self._strays

            done, why = await self.remove(digest, came)
            if why:
                stay.append(why)
            elif done and not came():
                log.info("an archive removed that no job has", archive=digest)
        return stay

    def _remove(self, digest: str) -> str:
        """Why it stays."""
        with self._changing, contextlib.suppress(ProtocolError):  # no digest: it isn't here
            return remove_file(self._path(digest))
        return ""

    async def ensure(self, record: JobRecord) -> None:
        """Have a job's archive here, and its working folder."""
        try:
            folder = self._work_folder(record.id)
            trusted = record.id in self._trusted and await asyncio.to_thread(folder.exists)
            if not trusted:
                data = await self._sound(record.archive)
                await asyncio.to_thread(_unpacked, data, folder)
                self._trusted.add(record.id)
        except Exception as error:
            why = reason("bringing a job's files", error)
            self._post(e.ArchiveReady(record.id, False, why))
            return
        try:
            await self.prepare(record.id)
        except Exception as error:  # a trainer starts all the same
            tell("bringing a job's output failed", error)
        self._post(e.ArchiveReady(record.id, True, ""))

    async def _sound(self, digest: str) -> bytes:
        """An archive's bytes. A power cut, or a bad disk, may have left others under its name."""
        data = await asyncio.to_thread(self._read, digest)
        return await self._ask_around(digest) if data is None else data

    def _read(self, digest: str) -> bytes | None:
        try:
            file = self._path(digest).open("rb")
        except FileNotFoundError:
            return None
        with file:
            data = file.read()
            if archive.digest(data) == digest:
                return data
            self._damaged(digest, file.fileno())
        return None

    def _is_sound(self, digest: str) -> bool:
        """Whether it is here. A damaged one is removed."""
        try:
            fd = self.open(digest)
        except FileNotFoundError:
            return False
        try:
            if digest_of(fd) == digest:
                return True
            self._damaged(digest, fd)
        finally:
            os.close(fd)
        return False

    def _damaged(self, digest: str, fd: int) -> None:
        """It is removed, unless a sound one has come in its place meanwhile."""
        path = self._path(digest)
        log.warning("an archive is damaged, and fetched again", path=str(path))
        with self._changing, contextlib.suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(fd)):
                path.unlink()

    async def _ask_around(self, digest: str) -> bytes:
        """Fetch an archive from whichever peer has it; the submitter may have died since."""
        async for attempt in attempts(self._asking_seconds):
            with attempt:
                data = await self._ask_once(digest)
        return data

    async def _ask_once(self, digest: str) -> bytes:
        reasons = ["no peer is connected"]
        for node in self._neighbours.connected():
            try:
                await self._fetch(digest, node)
                return await asyncio.to_thread(self._path(digest).read_bytes)
            except (ElasticdError, OSError) as error:
                reasons.append(f"{node}: {error}")
        raise OperationError(f"archive {digest[:12]}: {'; '.join(reasons)}")

    async def _fetch(self, digest: str, node: NodeId) -> None:
        """Fetch an archive from a node, and keep it."""
        with self.arrival() as arriving:
            fd = await asyncio.to_thread(arriving.open)
            await self._neighbours.fetch(node, WantArchive(digest), fd, MAX_ARCHIVE_BYTES)
            await self.take_in(arriving, digest)


def _names(folder: Path) -> list[str]:
    return [path.stem for path in folder.glob("*.tar")]


def _lines(fd: int) -> list[str]:
    with open(fd, "rb", closefd=False) as file:
        file.seek(0)
        return file.read().decode(errors="replace").split()


def _unpacked(data: bytes, folder: Path) -> None:
    """Have an archive in ``folder``, which a power cut may have emptied."""
    folder.parent.mkdir(exist_ok=True)
    if folder.exists():
        if archive.is_unpacked(data, folder):
            return
        log.warning("a working folder is damaged, and unpacked again", path=str(folder))
        remove_tree(folder)
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.*"):
        remove_tree(left)  # of an unpacking that was interrupted
    archive.unpack(data, folder)


async def _nothing(job: JobId) -> None:
    pass
