"""Disks that take longer to write a checkpoint than many intervals between two of them."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from .cluster import JobShape, Setup
from .run import Result, simulate
from .seeds import slow_disks
from .test_sim import job_events, passes

SHAPE = JobShape(steps=300, every=5)


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("seconds", [3.0, 5.0, 12.0])
def test_checkpoints_become_consistent_however_long_they_take(nodes: int, seconds: float) -> None:
    """Eight that all have skipped in the meantime do not push out the one that was written."""
    setup = Setup(seed=1, nodes=nodes, jobs=(SHAPE,), write_seconds=(seconds,) * nodes)
    result = passes(simulate(setup))
    found = len(job_events(result, "checkpoint_committed"))
    formed = min(result.cluster.checkers.forms.values(), key=lambda world: world.generation)
    assert formed.step == 0
    assert found >= result.seconds / (3 * seconds)


STORIES = (3, 11, 13, 16, 18)


def _drawn(seed: int) -> Setup:
    """Slow disks, on all nodes or on some, and no faults."""
    chance = random.Random(f"slow disks {seed}")
    nodes = chance.choice((2, 3, 3, 4, 5))
    replicas, every = chance.choice((1, 2, 2, 3)), chance.choice((3, 5, 10))
    shape = JobShape(steps=400, every=every, replicas=replicas)
    slow = slow_disks(chance, nodes)
    return Setup(seed=seed, nodes=nodes, jobs=(shape,), write_seconds=slow)


def _longest_wait(result: Result) -> float:
    """Without a checkpoint that becomes consistent, since the first step."""
    checkers = result.cluster.checkers
    first = min(time for commits in checkers.commits.values() for time, _ in commits.times)
    found = [time for time, _, event in checkers.events if event.kind == "checkpoint_committed"]
    times = [first, *(time for time in found if time > first), result.seconds]
    return max(after - before for before, after in pairwise(times))


@pytest.mark.parametrize("seed", STORIES)
def test_one_becomes_consistent_every_so_often_whichever_disks_are_slow(seed: int) -> None:
    """It takes a write and a copy, and what they have to wait for before."""
    setup = _drawn(seed)
    (shape,) = setup.jobs
    result = passes(simulate(setup))
    interval = result.seconds * shape.every / shape.steps
    assert _longest_wait(result) <= 2 * (max(setup.write_seconds) + interval) + 1.0
