"""Daemons that find by themselves where they can be reached, also while they run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.words.requests import ShowStatus
from tests.integration.netns import DAEMON_PORT, NetCluster, why_not

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "namespaces"),
]


class FindsItself(NetCluster):
    """Its daemons listen everywhere. Nobody says where that is."""

    def configure(self, node: str, **settings: Any) -> None:
        everywhere = {"listen": f"0.0.0.0:{DAEMON_PORT}", "advertise": ()}
        super().configure(node, **settings | everywhere)

    def hosts_of_links(self, node: str) -> list[str]:
        """By which addresses it reaches the others."""
        nodes = self.client_of(node).request(ShowStatus())["nodes"]
        return sorted(link["host"] for each in nodes for link in each["links"])


@pytest.mark.deep
def test_all_addresses_are_used_and_those_that_come_later(
    kernels: Path, tmp_path: Path, undisturbed: Callable[[str], str]
) -> None:
    expected = undisturbed("high.py")
    with FindsItself(tmp_path, 3, kernels, addresses=2) as net:
        first, second, late = net.nodes
        others = sorted(net.hosts(second) + net.hosts(late))
        net.wait_for("all addresses", lambda: net.hosts_of_links(first) == others)
        job = net.submit("high.py", job__args=["--pace-seconds", "0.2"])
        net.wait_whole(job, 2)

        net.kill_node(late)
        net.lose_addresses(late)
        net.start(late)
        net.wait_for(f"{late} alone", lambda: net.agree([late]))
        net.wait_view([first, second])
        net.give_addresses(late)
        net.wait_view(net.nodes)
        net.wait_for("all addresses", lambda: net.hosts_of_links(first) == others)
        told = [e for e in net.kinds(None, "addresses_found") if e["node"] == late]
        assert sorted(told[-1]["hosts"]) == sorted(net.hosts(late))

        net.hurry(job)
        status = net.wait_end(job)
        assert (status["digest"], status["lost_steps"]) == (expected, 0), net.report("bits", job)
