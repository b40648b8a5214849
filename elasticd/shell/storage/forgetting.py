"""What a job leaves on this node goes when the job is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import structlog
import tenacity

from elasticd.core.words.records import JobRecord
from elasticd.errors import ElasticdError, OperationError, StateError
from elasticd.removing import remove_tree
from elasticd.shell.children.children import Children
from elasticd.shell.storage.eventlog import EventLog
from elasticd.shell.storage.outputkeeper import OutputKeeper
from elasticd.shell.storage.states import States
from elasticd.shell.tasks import Tasks
from elasticd.types import JobId

_LOOK_SECONDS = 0.5
"""Between two looks whether a process of the job is still here."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 600.0
"""Before what could not be removed is tried again."""

log = structlog.get_logger(__name__)


class Forgetting:
    """Removes files in the background; whatever a crash leaves goes at the next start."""

    def __init__(
        self,
        children: Children,
        states: States,
        keeper: OutputKeeper,
        events: EventLog,
        others: Callable[[], Iterable[JobRecord]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``others``: the jobs that are not forgotten."""
        self._children, self._states = children, states
        self._keeper, self._events, self._others = keeper, events, others
        self._sleep = sleep
        self._tasks = Tasks("removing the files of a forgotten job")

    def close(self) -> None:
        self._tasks.stop()

    def go_on(self, records: Iterable[JobRecord]) -> None:
        """Remove what is left of jobs that were forgotten before this daemon was started, but for
        their events: those went first of all, before others could tell of them."""
        self._begin([record for record in records if record.forgotten])

    def forget(self, records: Sequence[JobRecord]) -> None:
        self._events.forget(record.id for record in records)
        self._begin(records)

    async def make_room(self, records: Sequence[JobRecord]) -> None:
        """Remove at once what takes most, though nothing is known to be forgotten yet: the disk has
        no room to note it. Who asked can ask again, should a crash leave jobs without files."""
        for job in (record.id for record in records):
            if not self._children.runs(job):
                await asyncio.to_thread(self._remove_of, job, self._children.files.recreated(job))
        self._events.forget(record.id for record in records)
        log.info("files of jobs removed to note that they are forgotten", reason="a full disk")

    def _begin(self, records: Sequence[JobRecord]) -> None:
        for record in records:
            work = partial(self._forget, record)
            self._tasks.keep("removing the files of a forgotten job", work)

    def _used(self, digest: str) -> bool:
        return any(other.archive == digest for other in self._others())

    async def _forget(self, record: JobRecord) -> None:
        job, told, removed = record.id, False, False
        lock = self._keeper.forget(job)
        while self._children.runs(job):  # it has ended, so they end
            await self._sleep(_LOOK_SECONDS)

        async def gone() -> bool:
            nonlocal told, removed
            async with lock:
                found, why = await asyncio.to_thread(self._remove, job)
                archive_gone, stays = await self._states.archives.remove(
                    record.archive, partial(self._used, record.archive)
                )
            why += [stays] if stays else []
            removed = removed or found
            if found:
                await self._states.changed(job)
            if why and not told:
                log.warning(
                    "files of a forgotten job stay", job=job, reason=why[0], tried_again=True
                )
                told = True
            return archive_gone and not why

        again = tenacity.AsyncRetrying(
            wait=tenacity.wait_exponential(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS),
            retry=tenacity.retry_if_result(lambda gone: not gone),
            sleep=self._sleep,
        )
        await again(gone)
        if removed or told:
            log.info("files of a forgotten job removed", job=job)

    async def remove_stray(self, job: JobId) -> None:
        """Remove what this node has of a job that no record names, as after a reset, and archives
        that no job has.

        Raises:
            OperationError: nothing of it is here, a process of it is, or some of it stays.
        """
        try:
            self._states.store.folder(job)
        except StateError:
            raise OperationError(f"no job {job}") from None
        if self._children.runs(job):
            raise OperationError(f"{job}: a process of it runs here still")
        async with self._keeper.forget(job):
            found, why = await asyncio.to_thread(self._remove, job)
        found = self._events.drop([job]) or found
        if not found and not why:
            raise OperationError(f"no job {job}")
        await self._states.changed(job)
        archives = self._states.archives
        for digest in await archives.names():
            _, stays = await archives.remove(digest, partial(self._used, digest))
            why += [stays] if stays else []
        if why:
            raise OperationError(f"files of {job} stay: {why[0]}")
        log.info("files of a job removed that no record names", job=job)

    def _remove(self, job: JobId) -> tuple[bool, list[str]]:
        return self._remove_of(job, self._children.files.of_job(job))

    def _remove_of(self, job: JobId, others: Iterable[Path]) -> tuple[bool, list[str]]:
        """Checkpoints, and ``others``. Whether there were any, and why some are left."""
        store = self._states.store
        why: list[str] = []
        folders = [*others]
        try:
            for stored in store.stored(job):
                self._states.remove_unused(job, stored.manifest.step, stored.manifest.stamp)
            if store.stored(job):
                why.append("a checkpoint of it is being exported")
            else:
                folders.append(store.folder(job))
        except (ElasticdError, OSError) as error:
            why.append(str(error))
        found = False
        for folder in folders:
            try:
                folder.lstat()
                found = True
                remove_tree(folder)
            except (FileNotFoundError, NotADirectoryError):  # nothing is there
                continue
            except OSError as error:
                why.append(str(error))
        return found, why
