"""What ``status`` shows of a running job, as its leader knows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticd.core.words.records import World
from elasticd.core.words.worlds import MemberStatus, Progress
from elasticd.types import NodeId


def ranks(
    world: World,
    committed: int,
    statuses: Mapping[NodeId, MemberStatus],
    progress: Mapping[NodeId, Progress],
) -> list[dict[str, Any]]:
    """One entry per rank of ``status --json``."""
    dealt = world.shares_now if committed <= world.step else world.shares
    result = []
    for rank, node in enumerate(world.members):
        status, own = statuses.get(node), progress.get(node)
        result.append(
            {
                "rank": rank,
                "node": node,
                "pid": status.trainer.pid if status and status.trainer else None,
                "reducer_pid": status.reducer_pid if status else None,
                "step": own.step if own else world.step,
                "grains": sum(end - start for start, end in dealt[rank]),
                "grain_seconds": round(own.grain_seconds, 4) if own else 0.0,
            }
        )
    return result
