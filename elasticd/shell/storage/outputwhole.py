"""When a job has ended, main's files of ``run.open`` get the lines that they lack.

Who has them answers now, and may be removed later: it may have been drained for that.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import structlog

from elasticd.errors import ElasticdError
from elasticd.outputs import OWN_FOLDER, WHOLE_PREFIX, index_of
from elasticd.shell.storage.outputmerging import OutputMerging
from elasticd.shell.storage.outputs import Outputs
from elasticd.types import JobId

_LOOK_SECONDS = 0.5
_LONGEST_SECONDS = 3600.0
"""A script may write behind its loop for so long; then its files stay as they are."""
log = structlog.get_logger(__name__)


class OutputWhole:
    """Of the jobs in whose last world this node was main."""

    def __init__(
        self,
        outputs: Outputs,
        output_folder: Callable[[JobId], Path],
        runs: Callable[[JobId], bool],
        lock: Callable[[JobId], asyncio.Lock],
    ) -> None:
        """``lock``: whoever holds it is the only one who changes the job's files, or removes
        them."""
        self._outputs, self._output_folder, self._runs = outputs, output_folder, runs
        self._lock = lock

    async def make(self, job: JobId) -> None:
        """The job has ended: do it once its script has."""
        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                while self._runs(job):  # noqa: ASYNC110  the script says to nobody else that it ends
                    await asyncio.sleep(_LOOK_SECONDS)
            world = await self._outputs.last_world(job)
            if world is None or world[1][0] != self._outputs.me:
                return
            async with self._lock(job):
                changed = await self._fill(job)
        except (ElasticdError, OSError) as error:
            log.warning("output not made whole", job=job, reason=str(error))
        else:
            if changed:
                await self._outputs.have_copied(job)

    async def _fill(self, job: JobId) -> bool:
        """Whether anything was lacking, and is here now."""
        made = await self._outputs.own_set(job, copy=False, steps=True)
        own = self._output_folder(job) / OWN_FOLDER
        if not any(file.managed for file in made.listing.files):
            return False
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=WHOLE_PREFIX, dir=own))
        try:
            merging = OutputMerging(
                self._outputs, job, self._outputs.me, copy=False, scratch=folder, takes=True
            )
            await merging.complete(made)
            for name, path in merging.here.items():
                index = merging.indices[name]
                await asyncio.to_thread(_place, self._output_folder(job), name, path, index)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        return bool(merging.here)


def _place(output: Path, name: str, path: Path, index: bytes) -> None:
    """Without an index a file is only what it was to its readers: so a crash tears no lines."""
    target, fresh = output / OWN_FOLDER / index_of(name), path.with_suffix(".index")
    fresh.write_bytes(index)
    shutil.copystat(output / name, path)
    target.unlink(missing_ok=True)
    os.replace(path, output / name)
    os.replace(fresh, target)
