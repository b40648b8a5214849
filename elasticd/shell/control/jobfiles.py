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
MAX_JOBS = 8
"""Of so many jobs at most a look has copies made; the others come at the next ones."""
MOST_RESTS = 32
"""So many looks at most pass over a job of which no more copies could be had: some minutes."""

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
    _rests: dict[JobId, tuple[int, int]] = field(default_factory=dict)
    """How many looks pass over a job yet, and how many do if it stays short once more."""
    _seen: Sequence[NodeId] = ()
    """Whom the last look counted on."""

    async def spread(self, record: JobRecord, known: frozenset[NodeId] = frozenset()) -> str:
        """Have the files, which are here, on as many nodes as are to have them, if there are so
        many; those that are ``known`` to have them are not asked. Returns why they are on fewer,
        or nothing."""
        lasting, wanted = self._lasting(), self._wanted(record)
        known |= {self.me}
        behind = sorted(each for each in lasting if each > self.me)
        others = behind + sorted(each for each in lasting if each < self.me)
        others = [each for each in others if each not in known]
        lacking = wanted - len(known & {*lasting})
        found = await self.archives.spread(record.archive, others, lacking)
        holders = self._holders[record.id] = known | {*found.done}
        if len(found.done) >= lacking:
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
            try:
                await self.look()
            except Exception:  # whatever it is, the next look may do better
                log.exception("the look over the jobs' files failed")

    async def look(self) -> None:
        """As the view's leader: of what too few nodes have since others have gone, have copies
        made, once the same nodes are there as at the last look."""
        live = self.node.tables.jobs.live
        self._holders = {job: nodes for job, nodes in self._holders.items() if job in live}
        self._told = {job: text for job, text in self._told.items() if job in live}
        self._rests = {job: rest for job, rest in self._rests.items() if job in live}
        lasting, before = self._lasting(), self._seen
        self._seen = lasting
        if lasting != before:
            self._rests.clear()
        if lasting != before or not self.node.views.leading:
            return
        if short := await self._short([*live.values()]):
            await self._find(short, lasting)
        for record in (await self._short(short))[:MAX_JOBS]:
            if record.id in live:
                await self._mend(record)

    async def _short(self, records: Sequence[JobRecord]) -> list[JobRecord]:
        """Those that too few are known to have, but for those that rest."""
        found = []
        for record in records:
            await asyncio.sleep(0)  # a queue may be long, and the daemon has other work
            try:
                enough = len(self._known(record)) >= self._wanted(record)
            except ElasticdError as error:  # a newer elasticd's record
                self._tell(record.id, str(error))
                continue
            if not enough and not self._rests_now(record.id):
                found.append(record)
        return found

    def _rests_now(self, job: JobId) -> bool:
        left, pause = self._rests.get(job, (0, 1))
        if left:
            self._rests[job] = left - 1, pause
        return left > 0

    async def _find(self, records: Sequence[JobRecord], nodes: Sequence[NodeId]) -> None:
        """Learn who has the files: another node may have spread them."""
        named = await self.archives.names_at([each for each in nodes if each != self.me])
        named[self.me] = await self.archives.names()
        for record in records:
            await asyncio.sleep(0)
            has = {node for node, names in named.items() if record.archive in names}
            lacks = named.keys() - has
            self._holders[record.id] = (self._holders.get(record.id, frozenset()) - lacks) | has

    async def _mend(self, record: JobRecord) -> None:
        try:
            await self.archives.have(record.archive)
            short = await self.spread(record, self._known(record))
        except (ElasticdError, OSError) as error:
            short = str(error)
            self._tell(record.id, short)
        _, pause = self._rests.pop(record.id, (0, 1))
        if short:
            self._rests[record.id] = pause, min(2 * pause, MOST_RESTS)

    def _known(self, record: JobRecord) -> frozenset[NodeId]:
        return self._holders.get(record.id, frozenset()) & {*self._lasting()}

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
