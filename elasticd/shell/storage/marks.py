"""How far each job has come, noted at every committed step without waiting for the disk.

A mark outlives every process. A power cut may take the newest ones, so that it tells of fewer steps
than there were; nothing but the count of lost steps depends on it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection
from pathlib import Path

from elasticd.core.words.effects import Reached
from elasticd.types import JobId, NodeId, Tag

_FILE_BYTES = 512
"""Written over as a whole: a shorter mark leaves nothing of a longer one."""


class Marks:
    """A small file for each job, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, reached: Reached) -> None:
        """Replace the job's mark. A disk that refuses keeps the older one, which is true too."""
        tag = reached.generation
        text = json.dumps([tag.counter, tag.leader, tag.nonce, reached.step])
        with contextlib.suppress(OSError):
            self._folder.mkdir(exist_ok=True)
            fd = os.open(self._path(reached.job), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, text.encode().ljust(_FILE_BYTES))
            finally:
                os.close(fd)

    def read(self, jobs: Collection[JobId]) -> tuple[Reached, ...]:
        """The marks of ``jobs``; those of all others are removed."""
        found = []
        for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            job = JobId(path.name)
            if job not in jobs:
                path.unlink()
                continue
            with contextlib.suppress(ValueError, TypeError, UnicodeError):  # torn by a power cut
                counter, leader, nonce, step = json.loads(path.read_text())
                tag = Tag(int(counter), NodeId(leader), str(nonce))
                found.append(Reached(job, tag, int(step)))
        return tuple(found)

    def _path(self, job: JobId) -> Path:
        return self._folder / job
