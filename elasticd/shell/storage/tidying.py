"""Removes what ``[keep]`` in elasticd.toml does not keep, in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from elasticd.core.jobs.keeping import (
    Calendar,
    EndedJob,
    LogPart,
    Removal,
    in_rounds,
    surplus,
    surplus_logs,
)
from elasticd.core.words.records import JobRecord
from elasticd.removing import remove_tree
from elasticd.settings.keep import KeepRules
from elasticd.shell.children.children import Children
from elasticd.shell.children.temporary import KERNELS, TemporaryFolders
from elasticd.shell.clock import monotonic_seconds, unix_seconds
from elasticd.shell.storage import backups, kernels, ownlog
from elasticd.shell.storage.archives import Archives
from elasticd.shell.storage.usage import OF_JOBS, RECREATED, of_job, size_bytes
from elasticd.types import JobId

ROUND_SECONDS = 600.0
_REMOVE_LINK = (
    "remove it as root; it is made again in ten minutes. Ranks that run now may be given files of"
    " that account: pause their jobs, remove it, and resume them"
)
FIRST_SECONDS = 60.0
"""A daemon that has just been started has others to listen to."""

log = structlog.get_logger(__name__)


class Tidying:
    """One node's. Never touches a job that has not ended, but for old parts of its log.

    Attributes:
        rules: what stays, from the next round on.
    """

    def __init__(
        self,
        home: Path,
        rules: KeepRules,
        records: Callable[[], Iterable[JobRecord]],
        ended: Callable[[JobId], float | None],
        children: Children,
        archives: Archives,
        forget: Callable[[tuple[JobId, ...]], None],
    ) -> None:
        """``records``: of all jobs that are not forgotten; ``ended``: when one did; ``forget``: has
        the cluster forget these."""
        self._home, self.rules = home, rules
        self._children, self._archives = children, archives
        self._temporary, self._taken = TemporaryFolders(children.files), ""
        self._records, self._ended = records, ended
        self._forget = forget
        self._calendar, self._told = Calendar(), False

    async def rounds(self) -> None:
        """For ever."""
        await asyncio.to_thread(backups.leave_out, self._home)
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            await asyncio.to_thread(self._rotate_own_log)
            await asyncio.to_thread(self._bound_kernels)
            await asyncio.to_thread(self._look_after_link)
            await self.tidy()
            await asyncio.sleep(ROUND_SECONDS)

    def _rotate_own_log(self) -> None:
        try:
            ownlog.rotate(self._home)
        except OSError as error:
            log.warning("this daemon's log is not rotated", reason=str(error))

    def _bound_kernels(self) -> None:
        try:
            gone = kernels.keep_within(self._home / "cache" / KERNELS)
        except OSError as error:
            log.warning("compiled kernels stay", reason=str(error))
        else:
            if gone:
                log.info("compiled kernels removed that were used longest ago", files=gone)

    def _look_after_link(self) -> None:
        taken = self._temporary.look_after()
        if taken and taken != self._taken:
            log.warning("another account has the place of a link to temporary files", path=taken,
                        cure=_REMOVE_LINK)  # fmt: skip
        self._taken = taken

    async def tidy(self) -> None:
        """Remove what is beyond the rules now."""
        records = list(self._records())
        over = [r for r in records if r.ended and not self._children.runs(r.id)]
        kinds = RECREATED if self.rules.results else tuple(OF_JOBS)
        times = {record.id: self._ended(record.id) for record in over}
        ended = {record.id for record in over}
        needed = {record.archive for record in records if record.id not in ended}
        jobs = await asyncio.to_thread(self._measured, over, times, kinds, needed)
        removals = surplus(jobs, self._now(times.values()), self.rules)
        if self.rules.results:
            gone = {each.job for each in removals}
            sizes = {job.id: job.size_bytes for job in jobs}
            await asyncio.to_thread(self._remove, [each for each in removals if sizes[each.job]])
            for digest in {job.archive for job in jobs if job.id in gone and job.archive_bytes}:
                await self._remove_archive(digest, gone)
        else:
            for each in removals:
                log.info("a job is forgotten", job=each.job, reason=each.reason)
            for several in in_rounds(removals):
                self._forget(several)
                await asyncio.sleep(0)
        if why := await self._archives.remove_strays(lambda: {r.archive for r in self._records()}):
            log.warning("archives that no job has stay", reason=why[0])
        running = [record.id for record in records if not record.ended]
        await asyncio.to_thread(self._trim_logs, running, self._children.open_logs())

    def beyond(self) -> frozenset[JobId]:
        """The ended jobs of which the rules keep not even the outputs, for their age or for how
        many ended later. Not those of which it isn't known yet when they ended; and none is too old
        before :meth:`tidy` has looked at the calendar."""
        if self.rules.results:
            return frozenset()
        ends = ((r, self._ended(r.id)) for r in self._records() if r.ended)
        over = [EndedJob(r.id, r.number, end, 0) for r, end in ends if end is not None]
        now, rules = self._calendar.believed, self.rules
        if now is None:
            now, rules = 0.0, replace(rules, days=0)
        return frozenset(each.job for each in surplus(over, now, rules))

    def _now(self, ends: Iterable[float | None]) -> float:
        """The time by which jobs age. While it isn't known of any when it ended the calendar has
        nothing to doubt the clock by, and is left alone."""
        clock, newest = unix_seconds(), max((t for t in ends if t is not None), default=None)
        if newest is None and self._calendar.believed is None:
            return clock
        now = self._calendar.look(clock, monotonic_seconds(), newest)
        why = self._calendar.doubt(clock)
        if why and not self._told:
            log.warning("jobs do not age by the clock", reason=why)
        self._told = bool(why)
        return now

    def _measured(
        self,
        over: Sequence[JobRecord],
        times: dict[JobId, float | None],
        kinds: tuple[str, ...],
        needed: Collection[str],
    ) -> list[EndedJob]:
        """``needed``: archives that others than these have."""
        home, archives = self._home, self._home / "archives"
        sizes = {
            digest: size_bytes(archives / f"{digest}.tar")
            for digest in {record.archive for record in over}.difference(needed)
        }
        return [
            EndedJob(
                record.id,
                record.number,
                times[record.id],
                of_job(home, record.id, kinds),
                record.archive,
                sizes.get(record.archive, 0),
            )
            for record in over
        ]

    async def _remove_archive(self, digest: str, gone: Collection[JobId]) -> None:
        def used() -> bool:
            return any(r.archive == digest and r.id not in gone for r in self._records())

        _, why = await self._archives.remove(digest, used)
        if why:
            log.warning("an archive stays", archive=digest, reason=why)

    def _remove(self, removals: Sequence[Removal]) -> None:
        for each in removals:
            why: list[str] = []
            for kind in RECREATED:
                try:
                    remove_tree(self._home / OF_JOBS[kind] / each.job)
                except OSError as error:
                    why.append(str(error))
            if why:
                log.warning("files of an ended job stay", job=each.job, reason="; ".join(why))
            else:
                log.info("files of an ended job removed", job=each.job, reason=each.reason)

    def _trim_logs(self, jobs: Iterable[JobId], in_use: set[Path]) -> None:
        def surplus(paths: list[Path]) -> list[Path]:
            parts = [LogPart(path.name, size_bytes(path), path in in_use) for path in paths]
            names = set(surplus_logs(parts, self.rules.log_bytes))
            return [path for path in paths if path.name in names]

        for job in jobs:
            gone, why = self._children.files.trim(job, surplus)
            for path in gone:
                log.info("an old part of a log removed", job=job, file=path.name)
            if why:
                log.warning("old parts of a log stay", job=job, reason=why)
