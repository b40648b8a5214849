"""Checkpoints of jobs that nobody trains now: the newest stays on as many nodes as it is to be on.

While a job trains its leader sees to that. One that rests, or has ended, has no leader. So each
node looks by itself at what the others have, and copies what it is to have of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import structlog

from elasticd.checkpoints.manifest import Manifest
from elasticd.checkpoints.summary import Row, rows
from elasticd.core.node import Node
from elasticd.core.words.records import JobRecord
from elasticd.errors import ElasticdError, OperationError
from elasticd.settings.job import JobSpec
from elasticd.shell.control.lasting import lasting_of, runs_of
from elasticd.shell.storage.outdated import stored_by_all
from elasticd.shell.storage.scrub import Scrubber
from elasticd.shell.storage.states import States
from elasticd.types import JobId, NodeId

ROUND_SECONDS = 10.0
"""Between two looks; a node that is away for less costs no copy."""
MAX_JOBS = 8
"""Of so many jobs at most a look asks the others; the rest come at the next ones."""
MOST_RESTS = 32
"""So many looks at most pass over a job of which a copy could not be had: some minutes."""

log = structlog.get_logger(__name__)


def to_copy(
    found: Collection[Row],
    replicas: int,
    counting: Collection[NodeId],
    stores: Collection[NodeId],
    me: NodeId,
) -> Row | None:
    """The newest consistent checkpoint of a job, if ``me`` is to copy it. All who see the same
    choose alike: stores first, and then by the job, so that not all copies come to one node.
    ``counting``: the nodes whose copies count."""
    row = max(
        (row for row in found if row.consistent),
        key=lambda row: (row.manifest.step, row.manifest.lineage),
        default=None,
    )
    if row is None:
        return None
    have = min(len({*nodes} & {*counting}) for nodes in row.present)
    short = max(0, min(replicas, len(counting)) - have)
    lacking = {node for nodes in row.present for node in counting if node not in nodes}
    order = sorted(lacking, key=lambda node: (node not in stores, _drawn(row, node)))
    return row if me in order[:short] else None


def _drawn(row: Row, node: NodeId) -> bytes:
    return hashlib.sha256(f"{row.manifest.job} {node}".encode()).digest()


@dataclass(slots=True)
class _Looks:
    """At one job, since it came to rest or ended."""

    turn: tuple[str, int]
    done: bool = False
    rests: int = 0
    """So many looks pass over it yet."""
    pause: int = 1
    """So many do if it goes wrong once more."""


@dataclass(slots=True)
class RestingJobs:
    """``scrubber``: knows who answers now, and what the quota is."""

    node: Node
    states: States
    scrubber: Scrubber
    _looks: dict[JobId, _Looks] = field(default_factory=dict)
    _seen: Mapping[NodeId, str] = field(default_factory=dict)
    """Who counted at the last look, and the runs of their daemons."""

    async def rounds(self) -> None:
        """For ever; who keeps this going begins it again where a look has failed."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Once the same nodes are there as at the last look: have here what is to be here of jobs
        that were not looked at since."""
        there, before = runs_of(self.node, lasting_of(self.node)), self._seen
        self._seen = there
        resting = {record.id: record for record in self._resting()}
        if there != before:
            resting.clear()
        self._looks = {job: looks for job, looks in self._looks.items() if job in resting}
        for record in self._due(resting.values()):
            looks = self._looks[record.id]
            try:
                await self._mend(record)
                looks.done = True
            except ElasticdError as error:
                looks.rests, looks.pause = looks.pause, min(2 * looks.pause, MOST_RESTS)
                text = "the checkpoint of a job at rest could not be copied here"
                log.warning(text, job=record.id, reason=str(error))

    def _resting(self) -> Iterator[JobRecord]:
        """The jobs that nobody trains."""
        for record in self.node.records.values():
            if record.state != "running" and not record.forgotten:
                yield record

    def _due(self, records: Iterable[JobRecord]) -> list[JobRecord]:
        """Those to look at now: what will go on first, then what has ended last. There may be years
        of them, so they are not sorted."""
        due = []
        for record in records:
            turn = record.state, record.turn
            looks = self._looks.get(record.id)
            if looks is None or looks.turn != turn:
                looks = self._looks[record.id] = _Looks(turn)
            if looks.rests:
                looks.rests -= 1
            elif not looks.done:
                due.append(record)
        return heapq.nsmallest(MAX_JOBS, due, key=lambda each: (each.ended, -each.number))

    async def _mend(self, record: JobRecord) -> None:
        """Raises ElasticdError: what is to be here can't be had now, or isn't known."""
        stored = await stored_by_all(self.states, self.scrubber.others, record.id)
        wanted = JobSpec.from_dict(record.spec).checkpoint.replicas
        stores = self.node.tables.nodes.standing().stores
        row = to_copy(rows(stored), wanted, [*self._seen], stores, self.states.me)
        if row is not None and await self.scrubber.has_room(row.manifest.bytes):
            await self._copy(row)
        if silent := sorted(self._seen.keys() - stored.keys()):
            raise OperationError(f"{', '.join(silent)} did not say what is stored there")

    async def _copy(self, row: Row) -> None:
        found, states = row.manifest, self.states
        shards = tuple((n, shard.bytes, shard.digest) for n, shard in enumerate(found.shards))
        name = found.job, found.step, found.stamp
        with states.pins.held(*name):
            await states.copies.pull(*name, found.count, shards, row.present)
            if self.node.records[found.job].forgotten:
                return  # meanwhile
            await states.keep_manifest(_named(found, states.me))
        await states.changed(found.job)
        log.info("the checkpoint of a job at rest was copied here", job=found.job, step=found.step)


def _named(found: Manifest, node: NodeId) -> Manifest:
    """With ``node`` as a holder of each shard, too."""
    holders = tuple(tuple(sorted({*named, node})) for named in found.holders)
    return replace(found, holders=holders)
