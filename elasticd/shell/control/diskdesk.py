"""What ``elasticctl disk`` is told, and how the files of each job that it lists are removed, or
found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd.core.words.requests.every import Outcome
from elasticd.core.words.requests.jobs import ForgetJob, JobChanged
from elasticd.core.words.requests.looking import ShowDisk
from elasticd.errors import OperationError
from elasticd.settings.diskroom import room_of
from elasticd.shell.control.server import Handler, Handlers, Said, Stream, on
from elasticd.shell.storage.usage import OF_JOBS, Usage, measure
from elasticd.types import JobId, NodeId, is_job_id

MAX_JOBS = 1000
"""So many are listed, those that take most; of the others the sum."""


@dataclass(frozen=True, slots=True)
class DiskDesk:
    """Of one node."""

    home: Path
    me: NodeId
    known: Callable[[JobId], bool]
    """Whether a record names the job, a forgotten one too."""
    away: Callable[[], Sequence[NodeId]]
    """Nodes that are not here, and may have records that this one has not."""
    forget_known: Callable[[ForgetJob, Stream], Awaitable[Outcome]]
    remove_stray: Callable[[JobId], Awaitable[None]]

    def handlers(self) -> Handlers:
        return {**on(ShowDisk, self.disk), **on(ForgetJob, self.forget)}

    async def forget(self, request: ForgetJob, stream: Stream) -> Outcome:
        if self.known(request.job):
            return await self.forget_known(request, stream)
        # As after a reset. Nodes that are here have no record either: they would have told it.
        if not self._has_files(request.job):
            raise OperationError(f"no job {request.job}")
        if away := self.away():
            raise OperationError(
                f"no record here names {request.job}, but {', '.join(away)} may have one, and is"
                " away: wait for it, or say that it is gone: 'elasticctl nodes forget NODE'"
            )
        await self.remove_stray(request.job)
        return JobChanged(request.job, f"removed from {self.me}, where no record named it")

    def _has_files(self, job: JobId) -> bool:
        return is_job_id(job) and any(self._folder(kind, job) for kind in OF_JOBS)

    def _folder(self, kind: str, job: JobId) -> Path | None:
        folder = self.home.absolute() / OF_JOBS[kind] / job
        return folder if folder.exists() else None

    def saying(self, handlers: Handlers) -> Handlers:
        """``handlers``, that say of a job which no record names how its files are had."""

        def wrapped(handler: Handler) -> Handler:
            async def handle(request: Any, stream: Stream) -> Said | None:
                try:
                    return await handler(request, stream)
                except OperationError as error:
                    job: JobId = getattr(request, "job", JobId(""))
                    if str(error) != f"no job {job}" or not (way := self._way(job)):
                        raise
                    raise OperationError(way) from None

            return handle

        return {kind: wrapped(handler) for kind, handler in handlers.items()}

    def _way(self, job: JobId) -> str:
        """To what there is of it here, in words; empty: there is nothing that is worth having."""
        if not is_job_id(job) or self.known(job):
            return ""
        found = []
        if self._folder("checkpoints", job):
            found.append(f"'elasticctl checkpoints export {job} --out PATH' writes its parameters")
        for kind, what in (("outputs", "the files that it has written"), ("logs", "its logs")):
            if folder := self._folder(kind, job):
                found.append(f"{what} are in {folder}")
        if not found:
            return ""
        return (
            f"no record names {job}, as after a reset, but {self.me} still has files of it:"
            f" {', '.join(found)}"
        )

    def _is_stray(self, job: JobId) -> bool:
        return is_job_id(job) and not self.known(job)

    async def disk(self, request: ShowDisk, stream: Stream) -> Mapping[str, Any]:
        used = await asyncio.to_thread(measure, self.home)
        disk = await asyncio.to_thread(room_of, self.home)
        return {
            "node": self.me,
            "home": str(self.home.absolute()),
            "free_bytes": disk.free_bytes,
            "total_bytes": disk.total_bytes,
            **(found := summed(used)),
            "strays": [job["job"] for job in found["jobs"] if self._is_stray(job["job"])],
        }


def summed(used: Usage) -> dict[str, Any]:
    """By kind and by job, what takes most first."""
    kinds = [(kind, sum(jobs.values())) for kind, jobs in used.items()]
    by_job: dict[str, dict[str, int]] = {}
    for kind, jobs in used.items():
        for job, size in jobs.items():
            if job:
                by_job.setdefault(job, {})[kind] = size
    sizes = {job: sum(own.values()) for job, own in by_job.items()}
    order = sorted(sizes, key=lambda job: (-sizes[job], job))
    others = order[MAX_JOBS:]
    return {
        "bytes": sum(size for _, size in kinds),
        "kinds": [
            {"kind": kind, "bytes": size}
            for kind, size in sorted(kinds, key=lambda each: (-each[1], each[0]))
        ],
        "jobs": [{"job": job, "bytes": sizes[job], **by_job[job]} for job in order[:MAX_JOBS]],
        "other_jobs": len(others),
        "other_bytes": sum(sizes[job] for job in others),
    }
