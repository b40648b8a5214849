"""Nodes with two addresses, of which one goes dead under a running ring."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.words.requests.looking import ShowStatus
from tests.integration.cluster import Cluster
from tests.integration.silence import silent, wait_all
from tests.integration.test_digest import check
from tests.integration.twoways import Cut, furnish, hosts, why_not

pytestmark = pytest.mark.process

filtered = pytest.mark.skipif(bool(why_not()), reason=why_not() or "packet filter")
Undisturbed = Callable[[str], str]
AT_ONCE_SECONDS = 5.0


@pytest.fixture
def cluster(tmp_path: Path, make_cluster: Callable[[Path, int], Cluster]) -> Iterator[Cluster]:
    """Three nodes, each with two addresses."""
    with make_cluster(tmp_path, 3) as made:
        made.command("local", "down")
        furnish(made.home)
        made.up()
        yield made


def links(cluster: Cluster) -> list[dict[str, Any]]:
    nodes = cluster.client.request(ShowStatus())["nodes"]
    return [link for node in nodes for link in node["links"]]


@filtered
def test_a_ring_moves_to_the_other_address_and_back(
    cluster: Cluster, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("high.py")
    first, second = hosts()
    cluster.wait_for("all addresses", lambda: len(links(cluster)) == 4)
    job = cluster.submit("high.py", recovery__spare="none", job__args=["--pace-seconds", "0.3"])
    wait_all(cluster, job, 3, 3)
    epoch = cluster.view()["epoch"]
    with Cut(first):
        faults = cluster.wait_for("the fault", lambda: cluster.broken(job))
        assert faults[0]["fault"] == "link_lost"

        def silences() -> list[dict[str, Any]]:
            """Those of a busy machine: what comes with the cut is the dead address's doing."""
            cut_at = faults[0]["time"]
            return [e for e in silent(cluster, job) if abs(e["time"] - cut_at) > AT_ONCE_SECONDS]

        finished = cluster.wait_for("a step", lambda: cluster.kinds(job, "recovery_finished"))
        retried = (finished[0]["rung"], finished[0]["lost_steps"]) == ("retry", 0)
        formed = cluster.kinds(job, "world_formed")[-1]
        retried &= f"at {second} instead of {first}" in formed["reason"]
        assert retried or silences(), cluster.report("no other address", job)
        given_up = len(formed["members"]) < 3
        assert not given_up or silences(), cluster.report("one was given up", job)

        def told() -> bool:
            states = {link["host"]: link["state"] for link in links(cluster)}
            return states == {first: "lost", second: "up"}

        # A busy machine answers late: for a moment the living one may be called sick.
        cluster.wait_for("the dead address to be lost and the other one up", told)
        worlds = len(cluster.kinds(job, "world_formed"))

    def moved_back() -> bool:
        formed = cluster.kinds(job, "world_formed")[worlds:]
        return bool(formed) and "instead of" not in formed[-1]["reason"]

    # One link may be back before the other: the ring moves twice then.
    cluster.wait_for("the first address to be used again", moved_back)
    check(cluster, job, "high.py", expected)
    same = cluster.view()["epoch"] == epoch
    assert same or silences(), "a dead address costs no view"
