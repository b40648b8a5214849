"""Jobs that can't run: each node has to tell why, and again after whatever people order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from elasticd.core.node import Node
from elasticd.types import JobId

from .cluster import Cluster
from .operators import Operator


def can_never_run(cluster: Cluster, job: JobId) -> bool:
    gone = job in cluster.missing_archives
    return gone or cluster.shapes[job].world_min > cluster.setup.nodes


def share_a_view(cluster: Cluster) -> bool:
    nodes = [host.node for host in cluster.hosts.values()]
    if any(node is None or node.views.view is None for node in nodes):
        return False
    return len({node.views.epoch for node in nodes if node is not None}) == 1


@dataclass(frozen=True, slots=True)
class Reasons:
    cluster: Cluster
    operator: Operator
    jobs: Sequence[JobId]
    """Those that can never run."""

    def left_alone(self) -> bool:
        """Whether all daemons are there, and every order is carried out or taken back: while a job
        is paused that is why it waits."""
        cluster, known = self.cluster, self.cluster.requests.keys() <= self.cluster.answers.keys()
        if not known or any(self.operator.lasting.values()) or not share_a_view(cluster):
            return False
        nodes = [host.node for host in cluster.hosts.values() if host.node is not None]
        records = [n.records[job] for n in nodes for job in self.jobs if job in n.records]
        return not any(r.paused and not r.ended for r in records) and not any(
            node.tables.nodes.standing().leaving for node in nodes
        )

    def told(self) -> bool:
        """Whether every node tells why these wait, those that have not been ended. The leader does,
        if some are of versions that in the story don't know the message with its account."""
        enough = any if self.cluster.mixture.mixed else all
        nodes = [host.node for host in self.cluster.living() if host.node is not None]
        return all(enough(self._tells(node, job) for node in nodes) for job in self.jobs)

    def _tells(self, node: Node, job: JobId) -> bool:
        if job not in node.records:
            return False
        if node.records[job].ended:
            return True
        reason, least = node.job_status(job)["reason"] or "", self.cluster.shapes[job].world_min
        if least <= self.cluster.setup.nodes:
            return "files could not be brought here" in reason
        return f"needs {least} nodes" in reason or f"at least {least} members are ready" in reason

    def orders(self) -> list[Callable[[], object]]:
        """What might make them forget why: one thing for each of them."""
        return [self._order(job) for job in self.jobs]

    def _order(self, job: JobId) -> Callable[[], object]:
        chance, operator = self.cluster.chances.of("orders"), self.operator
        hosts, seconds = list(self.cluster.hosts.values()), chance.uniform(0.1, 3.0)
        one, kind, rests = chance.choice(hosts), chance.randrange(6), chance.random() < 0.5
        leader = next((h for h in hosts if h.node is not None and h.node.views.leading), one)

        def each(does: Callable[..., object], *given: object) -> None:
            for host in hosts:
                does(host, *given)

        orders: list[Callable[[], object]] = [
            partial(operator.pause_for, job, seconds, one, rests=rests),
            partial(operator.retry, job, one),
            partial(operator.drain_for, one.name, seconds),
            partial(each, lambda host: operator.drain_for(host.name, seconds)),
            partial(leader.restart_daemon, seconds),
            partial(each, lambda host: host.restart_daemon(seconds)),
        ]
        self.cluster.say("orders", f"{job} {kind} {seconds:.1f} {one.name}")
        return orders[kind]
