"""How far each job has come, noted at every committed step without waiting for the disk.

A mark outlives every process, a moment after the step. A power cut, or a daemon's death while its
disk is slow, may take the newest ones, so that it tells of fewer steps than there were; nothing but
the count of lost steps depends on it.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Collection
from functools import partial
from pathlib import Path

from elasticd.core.words.effects import Reached
from elasticd.removing import remove_file
from elasticd.shell.inorder import AtOnce, EventDisk
from elasticd.types import JobId, NodeId, Tag

_FILE_BYTES = 512
"""Written over as a whole: a shorter mark leaves nothing of a longer one."""


class Marks:
    """A small file for each job, in a folder of their own."""

    def __init__(self, folder: Path, disk: EventDisk | None = None) -> None:
        """``disk`` writes beside the loop."""
        self._folder, self._disk = folder, disk or AtOnce()
        self._newest: dict[JobId, Reached] = {}
        """What is to be written: of each job one, however slow the disk is."""
        self._lock = threading.Lock()

    def write(self, reached: Reached) -> None:
        """Replace the job's mark. A disk that refuses keeps the older one, which is true too."""
        with self._lock:
            waits = reached.job in self._newest
            self._newest[reached.job] = reached
        if not waits:
            self._disk.do(partial(self._write, reached.job))

    def _write(self, job: JobId) -> None:
        with self._lock:
            reached = self._newest.pop(job)
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
                remove_file(path)  # what the disk keeps the next start removes
                continue
            with contextlib.suppress(ValueError, TypeError, UnicodeError):  # torn by a power cut
                counter, leader, nonce, step = json.loads(path.read_text())
                tag = Tag(int(counter), NodeId(leader), str(nonce))
                found.append(Reached(job, tag, int(step)))
        return tuple(found)

    def _path(self, job: JobId) -> Path:
        return self._folder / job
