"""Ids of jobs by the digest of what they are, in one file."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import structlog

from elasticd.shell.network.stream import aside
from elasticd.shell.storage.durable import write_durable
from elasticd.types import JobId

MAX_NOTED = 10_000

log = structlog.get_logger(__name__)


class NotedIds:
    """The newest :data:`MAX_NOTED`; who is told that one is noted finds it after a power cut."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids: dict[str, JobId] = {}

    def read(self) -> None:
        """What was noted before. A damaged file is one that isn't there. Blocks."""
        try:
            found = dict(json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            found = {}
        except (OSError, ValueError, TypeError) as error:
            log.warning("noted ids are forgotten", path=str(self._path), reason=str(error))
            found = {}
        self._ids = {str(digest): JobId(str(job)) for digest, job in found.items()}

    def get(self, digest: str) -> JobId | None:
        return self._ids.get(digest)

    async def note(self, digest: str, job: JobId) -> None:
        """Raises OSError: the disk refuses, and nothing is noted."""
        ids = {**self._ids, digest: job}
        while len(ids) > MAX_NOTED:
            del ids[next(iter(ids))]
        await aside(partial(write_durable, self._path, json.dumps(ids).encode()))
        self._ids = ids

    def drop(self, digest: str) -> None:
        """From now on, and in the file once another is noted."""
        self._ids.pop(digest, None)
