"""Checkpoints that a node keeps for nothing: it could not store newer ones, since its disk is full
say, so it knows of none that takes their place, and they fill its disk.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from elasticd.checkpoints import summary
from elasticd.checkpoints.manifest import Stored
from elasticd.checkpoints.retention import prunable, superseded, useless
from elasticd.errors import ElasticdError
from elasticd.shell.storage.states import States
from elasticd.types import JobId, NodeId

log = structlog.get_logger(__name__)


async def stored_by_all(
    states: States, nodes: Callable[[], list[NodeId]], job: JobId
) -> dict[NodeId, list[Stored]]:
    """What this node and those that answer have of a job."""
    stored: dict[NodeId, list[Stored]] = {}
    for node in (states.me, *nodes()):
        with contextlib.suppress(ElasticdError):
            stored[node] = await asyncio.to_thread(states.store_of(node).stored, job)
    return stored


async def remove_outdated(states: States, nodes: Callable[[], list[NodeId]], job: JobId) -> bool:
    """Remove here what the job's retention keeps on no node any more, or nobody can restore.
    Whether something went.

    Raises:
        OperationError: the job isn't known.
        StateError: the disk refuses.
    """
    stored = await stored_by_all(states, nodes, job)
    rows, announced = summary.rows(stored), states.retaining.announced(job)
    consistent = [row.manifest for row in rows if row.consistent]
    kept_nowhere = prunable(consistent, states.retaining.policies(job))
    gone = useless(rows, stored, announced)
    gone += [row for row in superseded(rows, announced) if row.manifest in kept_nowhere]
    mine = {item.manifest.point for item in stored.get(states.me, [])}
    went = False
    for m in (row.manifest for row in gone if row.manifest.point in mine):
        if await asyncio.to_thread(states.remove_unused, m.job, m.step, m.stamp):
            log.info("removed, since newer ones are on other nodes", job=job, step=m.step)
            went = True
    return went
