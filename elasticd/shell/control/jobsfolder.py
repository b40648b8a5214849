"""HOME/jobs/: what is renamed into it is submitted.

A job is a ``*.toml`` file there, or a folder with a ``job.toml``. The kernel's events are hints
only: they may be lost, doubled or early, so each one leads to a look at the whole folder, which is
the truth. What was renamed into it is whole and taken at once; what may still be written is taken
when it has been quiet for a while and no process writes it. The same content is submitted once,
also after a restart: a job's id is on the disk before anybody hears of it, and until it is known
that the job was taken it is submitted under that id, which makes no second job. A refused job gets
its reason beside it, in ``NAME.refused``, a taken one its id, in ``NAME.submitted``; of a file NAME
is without ``.toml``. Both go with the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import structlog

from elasticd import archive
from elasticd.errors import ConfigError, ElasticdError, OperationError, UsageError
from elasticd.removing import remove_file
from elasticd.settings.ownhome import account_name
from elasticd.shell.control.notedids import NotedIds
from elasticd.shell.network.stream import aside
from elasticd.shell.storage.durable import write_whole
from elasticd.shell.storage.quiet import QUIET_SECONDS, seconds_until_whole
from elasticd.shell.storage.watching import FolderWatch, Hints
from elasticd.shell.tasks import Tasks, tell
from elasticd.types import JobId

RETRY_SECONDS = 5.0
RESCAN_SECONDS = 30.0
"""The longest time between two looks, for events that were lost."""
CLOSE_SECONDS = 5.0
MAX_JOBS = 1000
"""That are looked at in one go, of those that wait; the others have their turn after that."""
MAX_INSIDE = archive.MAX_FILES
REFUSED_SUFFIX = ".refused"
SUBMITTED_SUFFIX = ".submitted"
ACCEPTED_NAME = ".accepted.json"
DRAWN_NAME = ".drawn.json"
"""Ids under which jobs are submitted that may not have been taken yet."""
_SUFFIXES = (REFUSED_SUFFIX, SUBMITTED_SUFFIX)

_JOB_FILE = "job.toml"
_TOML = ".toml"

log = structlog.get_logger(__name__)

ItsId = Callable[[Callable[[], JobId]], Awaitable[JobId]]
"""The id that was drawn for a job before, or the one that is drawn now, which is noted first."""
Submit = Callable[[Path, ItsId], Awaitable[JobId]]
"""Gets the path of a job.toml and what tells its id, which it returns once the job was taken.
Raises UsageError if the job is wrong, and another ElasticdError if it should be tried again later.
"""

Signature = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job that lies in the folder.

    Attributes:
        name: of the file or folder.
        toml: its job.toml.
        signature: changes when it is renamed or written.
        whole: nothing in it was written since it was renamed.
        written_at: newest modification inside, Unix seconds.
        owners: the accounts whose the folder and its job.toml are.
    """

    name: str
    toml: Path
    signature: Signature
    whole: bool
    written_at: float
    owners: frozenset[int]


class JobsFolder:
    """Watches one folder and submits what appears in it. Runs in the event loop; the disk is asked
    in threads, one thing after the other."""

    def __init__(self, folder: Path, submit: Submit) -> None:
        self._folder = folder.absolute()
        self._submit = submit
        self._hint = asyncio.Event()
        self._dealt_with: dict[str, Signature] = {}
        self._accepted = NotedIds(self._folder / ACCEPTED_NAME)
        self._drawn = NotedIds(self._folder / DRAWN_NAME)
        self._kernel = FolderWatch()
        self._polled = False
        self._tasks, self._begun = Tasks("looking into the jobs folder"), False
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, folder: Path, submit: Submit) -> Self:
        """Watch ``folder``, which is made if need be.

        Raises:
            OSError: the folder can't be made.
        """
        self = cls(folder, submit)
        await asyncio.to_thread(self._folder.mkdir, 0o700, parents=True, exist_ok=True)
        self._task = self._tasks.keep("looking into the jobs folder", self._run)
        return self

    async def close(self) -> None:
        """Stop watching. A submission under way is cancelled; what is being written is, still."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CLOSE_SECONDS)  # the disk may hang
        await self._kernel.close()

    async def _run(self) -> None:
        if not self._begun:
            await asyncio.to_thread(self._accepted.read)
            await asyncio.to_thread(self._drawn.read)
            await self._watch()
            self._begun = True
        while True:
            self._hint.clear()
            pause = await self._look()
            if self._polled:
                pause = min(pause, QUIET_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._hint.wait()

    async def _watch(self) -> None:
        hints = Hints(asyncio.get_running_loop(), self._hint.set)
        try:
            await self._kernel.start(self._folder, hints, recursive=False)
        except OSError as error:  # the system's limit of watches
            log.warning("jobs folder is not watched but polled", reason=str(error))
            self._polled = True

    async def _look(self) -> float:
        """Deal with everything that is new; returns after how many seconds to look again."""
        try:
            found = await asyncio.to_thread(find_jobs, self._folder)
        except OSError as error:
            log.error("jobs folder can't be read", reason=str(error))
            return RESCAN_SECONDS
        await self._forget_gone({job.name for job in found})
        waiting = [job for job in found if self._dealt_with.get(job.name) != job.signature]
        pause = RESCAN_SECONDS
        if len(waiting) > MAX_JOBS:
            log.warning("too many jobs in the folder", waiting=len(waiting), limit=MAX_JOBS)
            pause = RETRY_SECONDS
        for job in waiting[:MAX_JOBS]:
            try:
                wait = await asyncio.to_thread(
                    seconds_until_whole, job.toml, job.written_at, whole=job.whole
                )
            except OSError as error:  # one that can't be read must not keep the others
                log.warning("a job can't be looked at", name=job.name, reason=str(error))
                wait = RETRY_SECONDS
            if wait == 0:
                wait = await self._deal_with(job)
            pause = min(pause, wait or pause)
        return pause

    async def _deal_with(self, job: FoundJob) -> float:
        """Submit or refuse; returns the seconds until it is to be tried again, or 0."""
        try:
            refuse_foreign(job)
            digest = await asyncio.to_thread(content_digest, job)
            if (taken := self._accepted.get(digest)) is not None:
                log.info(
                    "job is known: one of the same content was taken", name=job.name, job=taken
                )
            else:
                taken = await self._submit(job.toml, partial(self._its_id, digest))
                log.info("job submitted", name=job.name, job=taken)
                await self._remember(digest, taken)
            await aside(partial(self._say_beside, job, SUBMITTED_SUFFIX, taken))
        except UsageError as error:
            await self._refuse(job, str(error))
        except PermissionError as error:
            where = error.filename or job.toml
            await self._refuse(job, f"{where}: can't be read: {error.strerror}")
        except FileNotFoundError:
            return QUIET_SECONDS  # it went away meanwhile
        except (ElasticdError, OSError) as error:
            log.warning("job not submitted yet", name=job.name, reason=str(error))
            return RETRY_SECONDS
        except Exception as error:  # it must not keep the others
            tell(f"taking {job.name} in the jobs folder failed, and is tried again", error)
            return RETRY_SECONDS
        self._dealt_with[job.name] = job.signature
        return 0

    async def _refuse(self, job: FoundJob, reason: str) -> None:
        log.warning("job refused", name=job.name, reason=reason)
        await aside(partial(self._say_beside, job, REFUSED_SUFFIX, reason))

    def _say_beside(self, job: FoundJob, suffix: str, text: str) -> None:
        """In place of what was said before, which goes when this is there. In a thread."""
        try:
            write_whole(self._beside(job.name, suffix), f"{text}\n".encode())
        except OSError as error:
            log.error("not written beside the job", name=job.name, text=text, reason=str(error))
        for each in _SUFFIXES:
            if each != suffix:
                self._unsay(job.name, each)

    def _unsay(self, name: str, suffix: str) -> None:
        """In a thread."""
        path = self._beside(name, suffix)
        if why := remove_file(path):
            log.warning("what was said of a job stays", path=str(path), reason=why)

    def _beside(self, name: str, suffix: str) -> Path:
        return self._folder / (name.removesuffix(_TOML) + suffix)

    async def _forget_gone(self, names: set[str]) -> None:
        for name in [name for name in self._dealt_with if name not in names]:
            del self._dealt_with[name]
            for suffix in _SUFFIXES:
                await aside(partial(self._unsay, name, suffix))

    # --- ids --------------------------------------------------------------------------------------

    async def _its_id(self, digest: str, draw: Callable[[], JobId]) -> JobId:
        if (job := self._drawn.get(digest)) is None:
            job = draw()
            await self._drawn.note(digest, job)
        return job

    async def _remember(self, digest: str, job: JobId) -> None:
        try:
            await self._accepted.note(digest, job)
        except OSError as error:  # after a restart it is submitted again, under the same id
            log.error("not noted that a job was taken", job=job, reason=str(error))
        else:
            self._drawn.drop(digest)


def find_jobs(folder: Path) -> list[FoundJob]:
    """The jobs in ``folder`` by name; names with a leading dot are somebody's temporary files.

    Raises:
        OSError: the folder can't be read.
    """
    found = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.is_symlink():
            continue
        try:
            if path.suffix == _TOML and path.is_file():
                found.append(_found(path, path, newest_ns=path.stat().st_mtime_ns))
            elif (path / _JOB_FILE).is_file():
                found.append(_found(path, path / _JOB_FILE, newest_ns=_newest_ns(path)))
        except FileNotFoundError:
            continue  # gone between the listing and the look
        except OSError:
            # It is refused when it is read; the others are to be found.
            found.append(_found(path, path / _JOB_FILE, newest_ns=0))
    return found


def _found(path: Path, toml: Path, newest_ns: int) -> FoundJob:
    status = path.stat()
    signature = (status.st_ino, status.st_ctime_ns, newest_ns, status.st_size)
    # A rename changes the status time, a write both, at the granularity of the file system's clock.
    whole = status.st_ctime_ns > newest_ns
    owners = {status.st_uid}
    with contextlib.suppress(OSError):  # it is refused when it is read
        owners.add(toml.stat().st_uid)
    return FoundJob(path.name, toml, signature, whole, newest_ns / 1e9, frozenset(owners))


def refuse_foreign(job: FoundJob, me: int | None = None) -> None:
    """A job runs as this account, so only what this account or root has put there is taken. (What
    lies in a folder of root's, root has put there.)

    Raises:
        UsageError: it belongs to another account.
    """
    me = os.geteuid() if me is None else me
    foreign = job.owners - {0, me}
    if me != 0 and foreign:
        names = ", ".join(account_name(uid) for uid in sorted(foreign))
        raise UsageError(
            f"it belongs to another account of this machine ({names}), and would run as"
            f" {account_name(me)}: copy it, so that it is yours"
        )


def _newest_ns(folder: Path) -> int:
    newest = folder.stat().st_mtime_ns
    seen, top = 0, str(folder).count(os.sep)
    for parent, folders, files in os.walk(folder):
        if parent.count(os.sep) - top >= archive.DEEPEST:
            folders.clear()  # deeper it can't be shipped
        for name in (*folders, *files):
            seen += 1
            if seen > MAX_INSIDE:  # it will be refused for that
                return newest
            newest = max(newest, os.lstat(os.path.join(parent, name)).st_mtime_ns)
    return newest


def content_digest(job: FoundJob) -> str:
    """Names the job's content: of a folder the files that would be shipped, of a file also its own
    bytes. Empty folders don't count: earlier versions shipped none, and what they have taken is not
    taken again.

    Raises:
        UsageError: the folder can't be shipped.
        OperationError, OSError: it can't be read.
    """
    if job.toml.name == job.name:
        data = job.toml.read_bytes()
        with contextlib.suppress(ConfigError):  # who submits it says what is wrong
            spec, packed = archive.of_job(job.toml, bare=True)
            data += packed.files_digest.encode()
            if spec.recipe is not None:  # its file isn't sent, but read here
                data += repr(spec.to_dict()).encode()
        return hashlib.blake2b(data, digest_size=32).hexdigest()
    packed = archive.pack(job.toml.parent)
    if packed.files == 0:
        raise OperationError("the folder is empty")
    return packed.files_digest
