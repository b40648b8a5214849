"""What ``elasticctl disk`` is told."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd.core.words.requests import ShowDisk
from elasticd.shell.control.server import Handlers, Stream, on
from elasticd.shell.storage.usage import Usage, measure
from elasticd.types import NodeId

MAX_JOBS = 1000
"""So many are listed, those that take most; of the others the sum."""


@dataclass(frozen=True, slots=True)
class DiskDesk:
    """Of one node."""

    home: Path
    me: NodeId

    def handlers(self) -> Handlers:
        return on(ShowDisk, self.disk)

    async def disk(self, request: ShowDisk, stream: Stream) -> Mapping[str, Any]:
        used = await asyncio.to_thread(measure, self.home)
        disk = await asyncio.to_thread(shutil.disk_usage, self.home)
        return {
            "node": self.me,
            "home": str(self.home.absolute()),
            "free_bytes": disk.free,
            "total_bytes": disk.total,
            **summed(used),
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
