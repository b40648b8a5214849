"""``elasticctl chaos link`` and ``partition``: links really cut, and nothing left of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from elasticd.shell.chaos.firewall import cut_prefix
from tests.integration.cluster import STEPS, Cluster
from tests.integration.test_digest import check

pytestmark = pytest.mark.process

Undisturbed = Callable[[str], str]
SLOW = ["--pace-seconds", "0.25"]
filtered = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("iptables") is None,
    reason="the packet filter needs Linux, root and iptables",
)


def rules(cluster: Cluster) -> list[str]:
    """Those of the machine's rules that the nodes have made: others run here, too."""
    said = subprocess.run(["iptables", "-w", "-S"], capture_output=True, text=True).stdout
    ours = [cut_prefix(cluster.home / node) for node in cluster.nodes]
    return [line for line in said.splitlines() if any(prefix in line for prefix in ours)]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux closes a ring's connections")
def test_a_link_is_closed(cluster: Cluster, undisturbed: Undisturbed) -> None:
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", recovery__spare="none", job__args=SLOW)
    ranks = cluster.wait_whole(job, 2)["ranks"]
    one, other = ranks[0]["node"], ranks[1]["node"]
    said = cluster.command(
        "chaos", "link", one, other, "--how", "close", "--seconds", "1", "--json"
    )
    assert json.loads(said) == {
        "what": "link", "groups": [[one], [other]], "how": "close", "seconds": 1.0,
    }  # fmt: skip
    cluster.wait_for("a fault", lambda: cluster.kinds(job, "fault_detected"))
    check(cluster, job, "high.py", expected)


@filtered
@pytest.mark.deep
def test_a_cluster_is_cut_in_halves(cluster: Cluster, undisturbed: Undisturbed) -> None:
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", job__args=["--pace-seconds", "0.13"])
    nodes = [rank["node"] for rank in cluster.wait_whole(job, 5)["ranks"]]
    began = time.time()

    def told(kind: str) -> set[str]:
        """Of which nodes, since then."""
        return {e["node"] for e in cluster.kinds(None, kind) if e["time"] > began}

    # A busy machine's daemons wait for others up to three times as long before they bury them.
    cluster.command("chaos", "partition", f"{nodes[0]},{nodes[1]}|{nodes[2]},{nodes[3]}",
                    "--seconds", "15")  # fmt: skip

    def parted() -> bool:
        return all(told("node_lost") & set(half) for half in (nodes[:2], nodes[2:]))

    cluster.wait_for("both halves to go on", parted)
    cluster.hurry(job)
    status = cluster.wait_end(job)
    assert status["digest"] == expected, cluster.report("another digest", job)
    cluster.check_ledger(job, STEPS, cumulative=True)
    cluster.wait_for("the halves to meet", lambda: len(cluster.view()["members"]) == 4)
    cluster.wait_for("that to be told", lambda: told("node_joined"))
    cluster.wait_for("the rules to go", lambda: not rules(cluster))


@filtered
def test_a_cut_outlives_no_daemon_that_comes_back(cluster: Cluster) -> None:
    one, other = cluster.nodes[:2]
    cluster.command("chaos", "link", one, other, "--seconds", "600")
    cluster.wait_for("the rules", lambda: sum("--dport" in rule for rule in rules(cluster)) >= 4)
    cluster.kill_node(one)
    cluster.kill_node(other)
    assert rules(cluster)
    cluster.revive()
    assert not rules(cluster)
    lines = [" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])]
    ours = [cut_prefix(cluster.home / node) for node in (one, other)]
    guards = [line for line in lines if "sleep 602.0; iptables" in line]
    assert not [line for line in guards if any(prefix in line for prefix in ours)]


def test_what_can_not_be_cut(cluster: Cluster) -> None:
    one = cluster.nodes[0]
    for words, code in (
        (("link", one, "nobody"), 1),
        (("link", one, one), 2),
        (("partition", f"{one}|"), 2),
        (("link", one, cluster.nodes[1], "--seconds", "0"), 2),
    ):
        done = cluster.run("chaos", *words)
        assert done.returncode == code, (words, done.stderr)
        assert "Traceback" not in done.stderr
