"""Jobs in the state ``preflight``: before the cluster knows them, nodes are asked again what they
lack (control/foresight.py)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from elasticd.core.words.records import JobRecord
from elasticd.types import JobId

PREFLIGHT = "preflight"
WAITS = "nodes on which its preflight has failed are asked again: 2 s at most"


@dataclass(slots=True)
class Preflights:
    """Of the daemon to which they were submitted: no other one has heard of them yet."""

    _waiting: dict[JobId, JobRecord] = field(default_factory=dict)
    _over: dict[JobId, asyncio.Event] = field(default_factory=dict)

    @contextlib.contextmanager
    def of(self, record: JobRecord) -> Iterator[Callable[[], None]]:
        """What is to be called once the job waits; it is over when this is left."""
        over = asyncio.Event()

        def wait() -> None:
            self._waiting[record.id], self._over[record.id] = record, over

        try:
            yield wait
        finally:
            over.set()
            if self._over.get(record.id) is over:
                del self._waiting[record.id], self._over[record.id]

    def record(self, job: JobId) -> JobRecord | None:
        """Of a job that waits; None: that one doesn't."""
        return self._waiting.get(job)

    def records(self) -> list[JobRecord]:
        """Of all that wait, in their order."""
        return sorted(self._waiting.values(), key=lambda record: record.number)

    async def over(self, job: JobId) -> None:
        """Return when that job does not wait, or not any more."""
        if (event := self._over.get(job)) is not None:
            await event.wait()
