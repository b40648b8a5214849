"""Somebody connects to reducers while their ring comes up: noticed, told, and nothing is lost."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.cluster import Cluster
from tests.integration.stranger import HOWS, How, Stranger
from tests.integration.test_digest import check

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="it looks for ports in Linux's way"),
]

PACE = ["--pace-seconds", "0.12"]
USUAL, MOST = 3, 10
"""So many reducers are killed, and at most so many if no stranger was quick enough until then."""


def reducers(cluster: Cluster) -> Callable[[], list[int]]:
    """The pids of a cluster's reducers, as they are now."""

    def look() -> list[int]:
        nodes = cluster.nodes
        return [p.pid for node in nodes for p in cluster.processes(node) if p.role == "reducer"]

    return look


def disturbed(cluster: Cluster, stranger: Stranger) -> str:
    """A job of three, whose rings a stranger takes links of as they come up."""
    with stranger:
        job = cluster.submit("high.py", job__args=PACE, world__max=3)
        step = cluster.wait_whole(job, 1)["step"]
        for number in range(MOST):
            enough = number >= USUAL or len(stranger.taken) >= stranger.rings
            if enough and told(cluster, job):
                break
            cluster.kill_reducer(job, stranger.dice.randrange(3))
            step = cluster.wait_whole(job, step + 1)["step"]
        cluster.hurry(job)
        cluster.wait_end(job)
    return job


def told(cluster: Cluster, job: str) -> list[dict[str, Any]]:
    """The faults that are told as a stranger's."""
    return [fault for fault in cluster.faults(job) if fault["sign"] == "stranger"]


OFTEN = ("relays",)
"""The others are tried at reducers alone, too (tests/children/test_greeting.py)."""


@pytest.mark.parametrize(
    "how", [how if how in OFTEN else pytest.param(how, marks=pytest.mark.deep) for how in HOWS]
)
def test_a_stranger_on_a_ring_is_noticed_and_left_at_once(
    cluster: Cluster, undisturbed: Callable[[str], str], how: How
) -> None:
    expected = undisturbed("high.py")
    # It may come too late for a link, or be one that hangs up like any peer: more than one ring.
    stranger = Stranger(reducers(cluster), random.Random(f"{how} 7"), 9, (how,))
    job = disturbed(cluster, stranger)
    check(cluster, job, "high.py", expected, f"{stranger.taken}")
    faults = told(cluster, job)
    assert stranger.taken and faults, cluster.report(f"{stranger.taken}", job)
    for fault in faults:
        assert "on the port of rank" in fault["evidence"][0] and fault["rank"] is not None, fault
    # Silence is told within greet_seconds, not form_seconds, and nothing is held against a node.
    hangs = [" ".join(f["evidence"]) for f in cluster.faults(job) if f["fault"] == "hang"]
    slow = [text for text in hangs if "did not form" in text]
    assert not slow, cluster.report(f"{stranger.taken}", job)
    assert not cluster.kinds(job, "node_unfit") and not cluster.kinds(job, "node_quarantined")


@pytest.mark.deep
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_strangers_that_do_anything_change_no_bit(
    cluster: Cluster, undisturbed: Callable[[str], str], seed: int
) -> None:
    """Any number of them, at any rank, and more often than a ring is tried again at once."""
    expected = undisturbed("high.py")
    stranger = Stranger(reducers(cluster), random.Random(seed), 9)
    job = disturbed(cluster, stranger)
    check(cluster, job, "high.py", expected, f"{stranger.taken}")
    assert told(cluster, job), cluster.report(f"{stranger.taken}", job)
