"""A job's files are on as many nodes as its checkpoints are to be on, until it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from elasticd.core.node import Node
from elasticd.core.words.records import JobRecord
from elasticd.counting import counted
from elasticd.errors import ElasticdError
from elasticd.settings.job import JobSpec
from elasticd.shell.storage.archives import Archives
from elasticd.types import JobId, NodeId

ROUND_SECONDS = 10.0
"""Between two looks of the leader; a node that is away for less costs no copy."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class JobFiles:
    """Has other nodes keep copies, from one node."""

    node: Node
    archives: Archives
    me: NodeId
    _holders: dict[JobId, frozenset[NodeId]] = field(default_factory=dict)
    """Who has said so, of each job."""
    _told: dict[JobId, str] = field(default_factory=dict)
    _seen: Sequence[NodeId] = ()
    """Whom the last look counted on."""

    async def spread(self, record: JobRecord) -> str:
        """Have the files, which are here, on as many nodes as are to have them, if there are so
        many. Returns why they are on fewer, or nothing."""
        lasting, wanted = self._lasting(), self._wanted(record)
        own = (self.me,) if self.me in lasting else ()
        behind = sorted(each for each in lasting if each > self.me)
        others = behind + sorted(each for each in lasting if each < self.me)
        found = await self.archives.spread(record.archive, others, wanted - len(own))
        holders = self._holders[record.id] = frozenset({self.me, *found.done})
        if len(own) + len(found.done) >= wanted:
            self._told.pop(record.id, None)
            return ""
        why = "; ".join(f"{each}: {reason}" for each, reason in sorted(found.failed.items()))
        short = (
            f"its files are on {', '.join(sorted(holders))} only,"
            f" not on {counted(wanted, 'node')} ({why})"
        )
        self._tell(record.id, short)
        return short

    async def rounds(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            await self.look()

    async def look(self) -> None:
        """As the view's leader: of what too few nodes have since others have gone, have copies
        made, once the same nodes are there as at the last look."""
        live = self.node.tables.jobs.live
        self._holders = {job: nodes for job, nodes in self._holders.items() if job in live}
        self._told = {job: text for job, text in self._told.items() if job in live}
        lasting, before = self._lasting(), self._seen
        self._seen = lasting
        if lasting != before or not self.node.views.leading:
            return
        for record in list(live.values()):
            await asyncio.sleep(0)  # a queue may be long, and the daemon has other work
            known = self._holders.get(record.id, frozenset()) & {*lasting}
            if record.id not in live or len(known) >= self._wanted(record):
                continue
            try:
                await self.archives.have(record.archive)
            except (ElasticdError, OSError) as error:
                self._tell(record.id, str(error))
            else:
                await self.spread(record)

    def _lasting(self) -> list[NodeId]:
        """The nodes that count: one that is drained may be switched off."""
        view = self.node.views.view
        members = sorted(view.members) if view is not None else []
        unwanted = self.node.drivers.unwanted()
        return [each for each in members if each not in unwanted] or members

    def _wanted(self, record: JobRecord) -> int:
        return min(JobSpec.from_dict(record.spec).checkpoint.replicas, len(self._lasting()))

    def _tell(self, job: JobId, reason: str) -> None:
        if self._told.get(job) != reason:
            self._told[job] = reason
            log.warning("a job's files are on too few nodes", job=job, reason=reason)
