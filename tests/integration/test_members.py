"""Who belongs to a cluster of real daemons, and what those get who don't."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.client.client import Client
from elasticd.core.words.requests.nodes import PutOutNode
from elasticd.errors import OperationError
from elasticd.types import NodeId
from tests.integration.cluster import Cluster
from tests.integration.test_digest import check

pytestmark = pytest.mark.process

SLOW = ["--pace-seconds", "0.25"]


def test_a_node_that_is_put_out_stays_out_and_costs_the_job_nothing_else(
    kernels: Path, undisturbed: Callable[[str], str], tmp_path: Path
) -> None:
    expected = undisturbed("high.py")
    with Cluster(tmp_path, 3, kernels) as cluster:
        job = cluster.submit("high.py", recovery__spare="none", job__args=SLOW)
        cluster.wait_whole(job, 2)
        at_one = Client(cluster.home / "node-1")
        with pytest.raises(OperationError, match="no node node-7"):
            at_one.change(PutOutNode(NodeId("node-7")))
        with pytest.raises(OperationError, match="is this node"):
            at_one.change(PutOutNode(NodeId("node-1")))
        at_one.change(PutOutNode(NodeId("node-2")))
        left = {"node-0", "node-1"}

        def alone() -> bool:
            return set(cluster.view()["members"]) == left

        cluster.wait_for("a view without node-2", alone)
        put_out = "node_put_out"
        (event,) = cluster.wait_for("word of it", lambda: cluster.kinds(None, put_out, "node-0"))
        assert event["node"] == "node-2"

        # Neither its own restart nor that of those who know lets it in again.
        for node in ("node-2", "node-0", "node-1"):
            cluster.restart_daemon(node)
        cluster.wait_for("a view without node-2", alone)
        assert "put out of the cluster" in (cluster.home / "node-0" / "daemon.log").read_text()
        check(cluster, job, "high.py", expected)
        cluster.wait_for("a view without node-2", alone)
