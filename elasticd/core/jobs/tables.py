"""What every node keeps of all jobs and nodes, and what the others tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from elasticd.core.jobs.nodes import NodeTable
from elasticd.core.jobs.table import JobTable
from elasticd.core.words import effects as e
from elasticd.core.words.tables import (
    Departing,
    Jobs,
    JobsKept,
    Nodes,
    NodesKept,
    OfTables,
    Summary,
)
from elasticd.types import JobId, NodeId


@dataclass(slots=True)
class Tables:
    jobs: JobTable
    nodes: NodeTable
    summaries: dict[JobId, dict[str, Any]] = field(default_factory=dict)
    """Of each job what its leader told last."""

    def share(self, nodes: Sequence[NodeId]) -> None:
        """Tell nodes, which may have missed it, of all jobs and of what operators want."""
        self.jobs.share(nodes)
        self.nodes.share(nodes)

    def asked(self, event: e.OfJobs) -> None:
        """An operator, or ``[keep]``, asks something of jobs."""
        match event:
            case e.Submit(request, record):
                self.jobs.submit(request, record)
            case e.Cancel(request, job):
                # With what is known of its course, which no leader tells any more.
                self.jobs.cancel(request, job, self.summaries.get(job, {}))
            case e.Forget(request, job):
                self.jobs.forget(request, job)
            case e.Discard(jobs):
                self.jobs.discard(jobs)
            case e.Pause(request, job, paused):
                self.jobs.pause(request, job, paused)
            case e.Retry(request, job, memory):
                self.jobs.retry(request, job, memory)
            case _:
                assert_never(event)

    def hear(self, node: NodeId, message: OfTables) -> None:
        """Another node tells of its own."""
        match message:
            case Jobs():
                self.jobs.on_jobs(node, message)
            case JobsKept(jobs):
                self.jobs.on_kept(node, jobs)
            case Nodes(told):
                self.nodes.on_nodes(node, told)
            case NodesKept(names):
                self.nodes.on_kept(node, names)
            case Departing():
                self.nodes.depart(node)
            case Summary(job, fields):
                self.summaries[job] = fields
            case _:
                assert_never(message)
