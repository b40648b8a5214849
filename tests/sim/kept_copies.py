"""What is left of a job's checkpoints in the end, by the rule of ``checkpoints verify``."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from elasticd.checkpoints import summary
from elasticd.checkpoints.retention import KeepLast, missing
from elasticd.types import JobId

if TYPE_CHECKING:
    from .cluster import Cluster


def lost_copies(cluster: Cluster, job: JobId) -> str:
    """Which copy was final and is gone, though nobody may have removed it, or nothing.

    What rot has made unreadable is set aside, and was not removed. Where a step was announced
    behind the same one or a later one there were two sides, or the job went back: then nodes have
    pruned by several lines. So they have where sides met of which one couldn't announce any.
    """
    told = [emit for _, _, emit in cluster.checkers.events if emit.job == job]
    if any(emit.kind == "lineages_met" for emit in told):
        return ""
    steps = [emit.fields["step"] for emit in told if emit.kind == "checkpoint_committed"]
    if any(later <= earlier for earlier, later in pairwise(steps)):
        return ""
    hosts = list(cluster.living())
    rows = summary.rows({host.name: host.disk.stored(job) for host in hosts})
    policies = [KeepLast(cluster.specs[job].checkpoint.keep)]
    for host in hosts:
        rotten = {key for key, _, _ in host.disk.rotten}
        for row, index in missing(rows, policies, host.name):
            m = row.manifest
            was_final = any(
                made.same_state(m) and index in held for made, held in host.disk.committed
            )
            if was_final and (m.job, m.step, m.stamp) not in rotten:
                return f"{host.name} has lost shard {index} of step {m.step} of {m.lineage}"
    return ""
