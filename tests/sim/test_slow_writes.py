"""Disks that take longer to write a checkpoint than many intervals between two of them."""

from __future__ import annotations

import pytest

from .cluster import JobShape, Setup
from .run import simulate
from .test_sim import job_events, passes

SHAPE = JobShape(steps=300, every=5)


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("seconds", [3.0, 5.0, 12.0])
def test_checkpoints_become_consistent_however_long_they_take(nodes: int, seconds: float) -> None:
    """Eight that all have skipped in the meantime do not push out the one that was written."""
    setup = Setup(seed=1, nodes=nodes, jobs=(SHAPE,), write_seconds=seconds)
    result = passes(simulate(setup))
    found = len(job_events(result, "checkpoint_committed"))
    formed = min(result.cluster.checkers.forms.values(), key=lambda world: world.generation)
    assert formed.step == 0
    assert found >= result.seconds / (3 * seconds)
