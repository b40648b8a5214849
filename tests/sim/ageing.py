"""What a cluster has lived through before the story begins, and what goes of it meanwhile.

Each home has many jobs that have ended, some of them forgotten, and nodes that are gone for good. A
node may have been away for some of that. During the story ``[keep]`` and operators remove more.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from elasticd.core.jobs.keeping import EndedJob, in_rounds, surplus
from elasticd.core.node import Node
from elasticd.core.words import effects as e
from elasticd.core.words.records import JobRecord, JobState, NodeRecord
from elasticd.settings.keep import KeepRules
from elasticd.types import JobId, NodeId

if TYPE_CHECKING:
    from .cluster import Cluster
    from .host import Host

LEAST_KEPT = 5
"""More than a story has jobs: ``[keep]`` removes none of them."""
_MISSED = 0.05
"""The share of what a node has not heard of yet."""
_ENDS: tuple[JobState, ...] = ("finished", "failed", "cancelled")


@dataclass(slots=True)
class Ageing:
    """The past of a run, and what may be removed of it."""

    cluster: Cluster
    old: dict[JobId, None] = field(default_factory=dict)
    """Jobs that had ended before the story began."""
    gone: list[NodeId] = field(default_factory=list)
    """Nodes that were taken off the list."""
    ended: set[JobId] = field(default_factory=set)
    """Jobs whose end is or was on a disk."""

    def begin(self) -> None:
        """Fill the homes."""
        cluster = self.cluster
        chance = random.Random(f"past {cluster.setup.seed}")
        hosts = list(cluster.hosts.values())
        for number in range(cluster.setup.past_jobs):
            record = _past_job(number, chance)
            self.old[record.id] = None
            self.ended.add(record.id)
            forgotten = chance.random() < 0.2
            told = self._told(hosts, chance)
            for host in told:
                host.disk.files.add(record.id)
                host.disk.append("job", record)
            for host in self._told(told, chance) if forgotten else ():
                host.disk.append("job", replace(record, forgotten=True).bounded())
        for number in range(cluster.setup.past_jobs // 20):
            node = NodeId(f"gone{number}")
            self.gone.append(node)
            for host in self._told(hosts, chance):
                host.disk.append("node", NodeRecord(node, 2, forgotten=True))

    def _told(self, hosts: Sequence[Host], chance: random.Random) -> list[Host]:
        """Those that were there; at least one was."""
        found = [host for host in hosts if chance.random() >= _MISSED]
        return found or [chance.choice(hosts)]

    # --- what removes -----------------------------------------------------------------------------

    def prune(self, host: Host, jobs: int) -> bool:
        """``[keep] jobs`` as the daemon's Tidying has it, with ``results = false``."""
        if host.node is None:
            return False
        ended = [
            EndedJob(r.id, r.number, None if r.id in self.old else 1.0, 1)
            for r in host.node.records.values()
            if r.ended and not r.forgotten and not host.runs(r.id)
        ]
        removals = surplus(ended, 1.0, KeepRules(days=0, jobs=jobs, bytes=0))
        for several in in_rounds(removals):
            host.post(e.Discard(several))
        return bool(removals)

    def persisted(self, host: Host, record: Any) -> None:
        """The record is on the host's disk."""
        if not isinstance(record, JobRecord):
            return
        if record.forgotten:
            if record.id not in self.ended or not record.ended:
                text = f"{host.name} forgets {record.id}, which has not ended"
                self.cluster.checkers.broken(text)
            self._remove_soon(host, record.id)
        elif record.ended:
            self.ended.add(record.id)

    def started(self, host: Host) -> None:
        """What was not removed before the daemon died goes now."""
        for record in list(host.node.records.values()) if host.node is not None else ():
            if record.forgotten:
                self._remove_soon(host, record.id)

    def _remove_soon(self, host: Host, job: JobId) -> None:
        if job in host.disk.files:
            seconds = host.chance("removals").uniform(0.0, 0.5)
            self.cluster.after(seconds, partial(self._remove, host, host.boot, job))

    def _remove(self, host: Host, boot: str, job: JobId) -> None:
        """As the daemon's Forgetting: once no process of the job is left."""
        if host.boot != boot:
            return
        if host.runs(job):
            self._remove_soon(host, job)
        else:
            host.disk.files.discard(job)

    # --- what must hold in the end ----------------------------------------------------------------

    def close(self) -> None:
        """The story is over; what a last round removes has to be gone everywhere soon."""
        for host in self.cluster.hosts.values() if self.old else ():
            self.prune(host, LEAST_KEPT)

    def unsettled(self) -> str:
        """Where the nodes do not agree on the past yet, or have too much of it; or nothing."""
        if not self.old:
            return ""
        # It is asked after each event: what takes long to look at comes last.
        nodes = [host.node for host in self.cluster.living() if host.node is not None]
        if not nodes:
            return "no daemon runs"
        most = LEAST_KEPT + len(self.cluster.specs)
        for node in nodes:
            if (shown := sum(not record.forgotten for record in node.records.values())) > most:
                return f"{node.me} shows {shown} jobs"
            listed = node.tables.nodes.records
            if lost := [n for n in self.cluster.hosts if n in listed and listed[n].forgotten]:
                return f"{node.me} does not list {lost[0]}, which is there"
        return self._left_on_disks() or self._differing(nodes)

    def _differing(self, nodes: Sequence[Node]) -> str:
        same, first = self.cluster.mixture.same, nodes[0].records
        for node in nodes[1:]:
            if node.records.keys() != first.keys():
                return f"{node.me} and {nodes[0].me} know of other jobs"
            for job in reversed(first):  # the oldest are removed first
                if not same((node.records[job], first[job])):
                    return f"{node.me} and {nodes[0].me} differ in {job}"
        return ""

    def _left_on_disks(self) -> str:
        for host in self.cluster.living():
            assert host.node is not None
            records = host.node.records
            for job in sorted(host.disk.files):
                if job in records and records[job].forgotten:
                    return f"{host.name} has files of {job}, which is forgotten"
        return ""


def _past_job(number: int, chance: random.Random) -> JobRecord:
    state = chance.choice(_ENDS)
    steps = chance.randrange(1, 1000)
    job = JobId(f"past-{number}-{chance.getrandbits(20):05x}")
    spec = {"job": {"name": "past", "entrypoint": "train.py"}, "train": {"steps": steps}}
    reason = None if state == "finished" else f"it {state} at step {steps}"
    account = {"recoveries": chance.randrange(9), "steps_per_second": steps / 7}
    archive = f"archive{number // 3}"
    return JobRecord(job, number + 1, spec, archive, state, reason, steps, account=account)
