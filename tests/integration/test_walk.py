"""Sums that are made along the ring, in whole clusters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.integration.cluster import Cluster

pytestmark = pytest.mark.process

MODEL_BYTES = 4 * 271_364
SLOW = ["--pace-seconds", "0.1"]
"""There are steps left for the last kill, however late a busy machine looks."""


def test_kills_change_no_bit_where_sums_walk(cluster: Cluster) -> None:
    alone = cluster.submit("wide.py", world__max=1)
    expected = cluster.wait_end(alone)["digest"]
    job = cluster.submit("wide.py", job__args=SLOW, world__max=3)
    # Three ranks send two vectors each, of a bit more than the gradients; to gather takes four.
    two = range(2 * MODEL_BYTES, 2 * MODEL_BYTES + MODEL_BYTES // 10)
    cluster.wait_for("two vectors", lambda: cluster.status(job)["bytes_per_step"] in two or None)
    status = under_kills(cluster, job)
    assert status["digest"] == expected and status["exact"] is True


@pytest.mark.deep
def test_fast_sums_that_walk_survive_kills(cluster: Cluster) -> None:
    """Members compare their parameters every four steps: all have the same sums."""
    job = cluster.submit(
        "wide.py",
        job__args=SLOW,
        world__max=3,
        world__reduction="fast",
        recovery__verify_every=4,
    )
    status = under_kills(cluster, job)
    assert status["exact"] is False
    assert not [fault for fault in cluster.faults(job) if fault["fault"] == "divergence"]


def under_kills(cluster: Cluster, job: str) -> dict[str, Any]:
    """What becomes of a job whose reducers and trainers are killed in turn."""
    for step, kill in (
        (5, cluster.kill_reducer),
        (10, cluster.kill_trainer),
        (15, cluster.kill_reducer),
        (20, cluster.kill_reducer),
    ):
        cluster.wait_for(f"a kill at step {step}", partial(struck, cluster, job, step, kill))
    cluster.hurry(job)
    status = cluster.wait_end(job)
    broken = status["recoveries"] + cluster.moves(job)
    assert broken >= 4 and status["lost_steps"] == 0, cluster.report("a kill broke nothing", job)
    return status


def struck(
    cluster: Cluster, job: str, step: int, kill: Callable[[str, int], int | None]
) -> int | None:
    """One of a world that has settled; None if there was none of that rank any more."""
    wait_settled(cluster, job, step)
    return kill(job, step // 5 % 3)


def wait_settled(cluster: Cluster, job: str, step: int) -> None:
    """Until three ranks have taken a step in one world: a kill while the next one is being formed,
    for a newcomer, would break none."""
    began: dict[str, int] = {}

    def look() -> bool:
        status = cluster.wait_whole(job, step)
        if len(status["ranks"]) < 3:
            return False
        return bool(status["step"] > began.setdefault(str(status["generation"]), status["step"]))

    cluster.wait_for(f"three ranks in one world at step {step} of {job}", look)
