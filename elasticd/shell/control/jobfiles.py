"""A job's files are on as many nodes as its checkpoints are to be on, until it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from elasticd.core.node import Node
from elasticd.core.words.records import JobRecord
from elasticd.counting import counted
from elasticd.errors import ElasticdError
from elasticd.settings.job import JobSpec
from elasticd.shell.control.lasting import lasting_of, members_of, runs_of
from elasticd.shell.storage.archives import Archives
from elasticd.shell.tasks import tell
from elasticd.types import JobId, NodeId

ROUND_SECONDS = 10.0
"""Between two looks of the leader; a node that is away for less costs no copy."""
MAX_JOBS = 8
"""Of so many jobs at most a look has copies made; the others come at the next ones."""
MOST_RESTS = 32
"""So many looks at most pass over a job of which no more copies could be had: some minutes."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Copies:
    """Of one job's files."""

    holders: dict[NodeId, str] = field(default_factory=dict)
    """Who has said so, and the run of its daemon then: another one may be on an empty disk."""
    told: str = ""
    rests: int = 0
    """So many looks pass over it yet."""
    pause: int = 1
    """So many do if it stays short once more."""

    def rests_now(self) -> bool:
        """Whether this look passes over it."""
        rests, self.rests = self.rests, max(0, self.rests - 1)
        return rests > 0

    def mended(self, short: str) -> None:
        """Copies were made: enough, or why not."""
        self.rests, self.pause = (self.pause, min(2 * self.pause, MOST_RESTS)) if short else (0, 1)


@dataclass(slots=True)
class JobFiles:
    """Has other nodes keep copies, from one node."""

    node: Node
    archives: Archives
    me: NodeId
    _jobs: dict[JobId, _Copies] = field(default_factory=dict)
    _seen: Mapping[NodeId, str] = field(default_factory=dict)
    """Whom the last look counted on, with the runs of their daemons."""

    async def spread(self, record: JobRecord) -> str:
        """Have the files, which are here, on as many nodes as are to have them, if there are so
        many. Returns why they are on fewer, or nothing."""
        short = await self._spread(record, self.me, frozenset((self.me,)))
        self._tell(record.id, short)
        return short

    async def _spread(self, record: JobRecord, source: NodeId, known: frozenset[NodeId]) -> str:
        """The same of files that ``source`` gives; those that are ``known`` to have them are not
        asked. Stores come first: those that train go together, as a rule."""
        lasting, wanted = lasting_of(self.node), self._wanted(record)
        behind = sorted(each for each in lasting if each > self.me)
        others = behind + sorted(each for each in lasting if each < self.me)
        stores = self.node.tables.nodes.standing().stores
        others = sorted((n for n in others if n not in known), key=lambda n: n not in stores)
        lacking = wanted - len(known & {*lasting})
        runs = runs_of(self.node, known.union(others))  # before they are asked
        found = await self.archives.spread(record.archive, source, others, lacking)
        holders = known | {*found.done}
        self._of(record.id).holders = {node: runs[node] for node in holders}
        if len(found.done) >= lacking:
            return ""
        why = "; ".join(f"{each}: {reason}" for each, reason in sorted(found.failed.items()))
        on = ", ".join(sorted(holders | {source}))
        return f"its files are on {on} only, not on {counted(wanted, 'node')} ({why})"

    async def rounds(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            try:
                await self.look()
            except Exception as error:  # whatever it is, the next look may do better
                tell("looking over the jobs' files failed", error)

    async def look(self) -> None:
        """As the view's leader: of what too few nodes have since others have gone, have copies
        made, once the same nodes are there as at the last look."""
        live = self.node.tables.jobs.live
        self._jobs = {job: known for job, known in self._jobs.items() if job in live}
        there, before = runs_of(self.node, lasting_of(self.node)), self._seen
        self._seen = there
        if there != before:
            for known in self._jobs.values():
                known.rests, known.pause = 0, 1
            return
        if not self.node.views.leading:
            return
        if short := await self._short([*live.values()]):
            await self._find(short)
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
            if not enough and not self._of(record.id).rests_now():
                found.append(record)
        return found

    async def _find(self, records: Sequence[JobRecord]) -> None:
        """Learn who has the files: another node may have spread them. One that is drained gives
        them, too."""
        members = members_of(self.node)
        runs = runs_of(self.node, {*members, self.me})  # before they are asked
        named = await self.archives.names_at([each for each in members if each != self.me])
        named[self.me] = await self.archives.names()
        for record in records:
            await asyncio.sleep(0)
            has = {node for node, names in named.items() if record.archive in names}
            job = self._of(record.id)
            kept = {node: run for node, run in job.holders.items() if node not in named}
            job.holders = kept | {node: runs[node] for node in has}

    async def _mend(self, record: JobRecord) -> None:
        try:
            short = await self._copied(record)
        except (ElasticdError, OSError) as error:
            short = str(error)
        self._tell(record.id, short)
        self._of(record.id).mended(short)

    async def _copied(self, record: JobRecord) -> str:
        """Returns why there are too few copies, or nothing. This node, if it is not counted on,
        takes one only where it doesn't work without."""
        known, holders = self._known(record), self._holders(record)
        if self.me not in holders and self.me not in lasting_of(self.node):
            for source in sorted(holders.intersection(members_of(self.node)))[:1]:
                if not await self._spread(record, source, known):
                    return ""
                known = self._known(record)
        if not self.node.ctx.station.holds:
            return "no node that may hold its files gives them to others"
        await self.archives.have(record.archive)
        return await self._spread(record, self.me, known | {self.me})

    def _of(self, job: JobId) -> _Copies:
        return self._jobs.setdefault(job, _Copies())

    def _known(self, record: JobRecord) -> frozenset[NodeId]:
        return self._holders(record) & {*lasting_of(self.node)}

    def _holders(self, record: JobRecord) -> frozenset[NodeId]:
        """As far as their daemons still are those that said so."""
        said = self._of(record.id).holders
        now = runs_of(self.node, said)
        return frozenset(node for node, run in said.items() if now[node] in ("", run))

    def _wanted(self, record: JobRecord) -> int:
        return min(JobSpec.from_dict(record.spec).checkpoint.replicas, len(lasting_of(self.node)))

    def _tell(self, job: JobId, reason: str) -> None:
        """Once, while it is so; nothing: there are enough."""
        known = self._of(job)
        before, known.told = known.told, reason
        if reason and reason != before:
            log.warning("a job's files are on too few nodes", job=job, reason=reason)
