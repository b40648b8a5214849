"""Which jobs ``status`` lists, and what it says of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from elasticd.core.jobs.status import job_settings, job_status
from elasticd.core.node import Node
from elasticd.shell.control.preflights import PREFLIGHT, WAITS, Preflights
from elasticd.shell.storage.eventform import Event
from elasticd.shell.storage.eventlog import EventLog
from elasticd.shell.storage.eventreading import EventReading
from elasticd.types import JobId

JOBS_AT_ONCE = 64
"""Described before the event loop has its turn: thousands would hold up heartbeats."""


@dataclass(frozen=True, slots=True)
class JobListing:
    """Of one node."""

    node: Node
    events: EventLog
    reading: EventReading
    preflights: Preflights

    def listed(self, ended: int | None) -> list[JobId]:
        """The jobs in their order; of the ended ones only so many, those that ended last."""
        jobs = self.node.tables.jobs
        if ended == 0:  # asked again and again: years of jobs would be looked at each time
            return [record.id for record in jobs.queue() if not record.forgotten]
        shown = [record for record in jobs.all() if not record.forgotten]
        over = [record.id for record in shown if record.ended]
        if ended is None or len(over) <= ended:
            return [record.id for record in shown]
        over.sort(key=lambda job: self.events.ended(job) or 0.0)
        last = set(over[len(over) - ended :])
        return [record.id for record in shown if not record.ended or record.id in last]

    def before(self, job: JobId | None) -> list[dict[str, Any]]:
        """What is said of jobs that wait for their preflight, or of that one."""
        shown: dict[str, Any] = {"state": PREFLIGHT, "reason": WAITS, "ended": None, "recent": []}
        waiting = [each for each in self.preflights.records() if each.id not in self.node.records]
        return [{**job_status(each, {}), **shown} for each in waiting if job in (None, each.id)]

    def names(self) -> list[JobId]:
        """The jobs that may be named by how their ids begin."""
        known = [job for job, record in self.node.records.items() if not record.forgotten]
        return [*known, *(record.id for record in self.preflights.records())]

    def settings(self, job: JobId) -> dict[str, Any]:
        """What the job.toml says of one that is listed, for people."""
        return job_settings(self.preflights.record(job) or self.node.records[job])

    async def some_at_a_time(self, jobs: Sequence[JobId]) -> AsyncIterator[list[dict[str, Any]]]:
        """What is said of each; of one that was forgotten meanwhile nothing."""
        records = self.node.records
        for start in range(0, len(jobs), JOBS_AT_ONCE):
            some = jobs[start : start + JOBS_AT_ONCE]
            notable = {job: await self.reading.notable(job) for job in some}
            yield [self._described(j, notable[j]) for j in some if not records[j].forgotten]
            await asyncio.sleep(0)

    def _described(self, job: JobId, notable: list[Event]) -> dict[str, Any]:
        """``notable``: the newest faults and decisions, each with its sentence."""
        ended = self.events.ended(job) if self.node.records[job].ended else None
        shown = ("time", "kind", "node", "reason")
        recent = [{key: event.get(key) for key in shown} for event in notable]
        return {**self.node.job_status(job), "ended": ended, "recent": recent}
