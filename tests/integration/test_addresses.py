"""Daemons that find by themselves where they can be reached, also while they run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.words.requests.looking import ShowStatus
from elasticd.shell.storage import whereabouts
from elasticd.types import NodeId
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

    def links(self, node: str) -> list[tuple[str, str]]:
        """At which addresses it reaches the others, and how that is."""
        nodes = self.client_of(node).request(ShowStatus())["nodes"]
        return sorted((link["host"], link["state"]) for each in nodes for link in each["links"])

    def wait_known(self, hosts: dict[str, list[str]]) -> None:
        """Until all reach each other at these addresses, and at no others."""

        def known() -> bool:
            return all(
                self.links(node)
                == sorted((h, "up") for n, own in hosts.items() if n != node for h in own)
                for node in self.nodes
            )

        self.wait_for(f"links at {hosts}", known)


class NamesEverything(NetCluster):
    """Each daemon is told all addresses of all."""

    def configure(self, node: str, **settings: Any) -> None:
        others = tuple(a for n in self.nodes if n != node for a in self.answers(n))
        super().configure(node, **settings | {"peers": others})


@pytest.mark.deep
def test_an_address_that_comes_is_used_and_one_that_goes_is_left(
    kernels: Path, tmp_path: Path, undisturbed: Callable[[str], str]
) -> None:
    expected = undisturbed("high.py")
    net = FindsItself(tmp_path, 3, kernels, addresses=2)
    second = {node: net.hosts(node)[1] for node in net.nodes}
    for node, address in second.items():
        net.take_address(node, address)
    with net:
        net.wait_known({node: [net.host(node)] for node in net.nodes})
        job = net.submit("high.py", recovery__spare="none", job__args=["--pace-seconds", "0.4"])

        def formed() -> list[dict[str, Any]]:
            return net.kinds(job, "world_formed")

        net.wait_whole(job, 2)
        net.wait_for("a world of all", lambda: len(formed()[-1]["members"]) == len(net.nodes))
        view, worlds = net.view(), len(formed())

        for node, address in second.items():
            net.give_address(node, address)
        net.wait_known({node: net.hosts(node) for node in net.nodes})
        again = len(formed()) - worlds
        assert again <= net.moves(job) or net.unheard(job), net.report("interrupted", job)

        right = formed()[-1]["members"][1]
        net.cut_address(right, net.host(right))

        def moved() -> bool:
            said = [each["reason"] for each in formed()[worlds:]]
            return any(f"{right} at {second[right]} instead" in each for each in said)

        net.wait_for(f"the ring to reach {right} at {second[right]}", moved)
        net.take_address(right, net.host(right))

        def left() -> bool:
            known = [net.links(node) for node in net.nodes if node != right]
            return all((second[right], "up") in links for links in known) and not any(
                host == net.host(right) for links in known for host, _ in links
            )

        net.wait_for(f"nobody to look for {right} at {net.host(right)}", left)
        net.hurry(job)
        status = net.wait_end(job)
        assert (status["digest"], status["lost_steps"]) == (expected, 0), net.report("bits", job)
        assert net.view() == view or net.unheard(job), net.report("another view", job)


def test_an_address_that_is_missing_at_the_start_is_used_once_it_is_there(
    kernels: Path, tmp_path: Path
) -> None:
    """As on a Mac whose cable is plugged in later. Of the two networks it is in one."""
    net = NamesEverything(tmp_path, 2, kernels, addresses=2)
    late = net.nodes[1]
    net.take_address(late, net.host(late))
    with net:
        first = net.client_of(net.nodes[0])

        def known() -> list[tuple[str, str]]:
            nodes = first.request(ShowStatus())["nodes"]
            return sorted((at["host"], at["state"]) for n in nodes for at in n["links"])

        net.wait_for("the other address", lambda: (net.hosts(late)[1], "up") in known())
        assert (net.host(late), "up") not in known()
        net.give_address(late, net.host(late))
        net.wait_for("both", lambda: known() == [(host, "up") for host in net.hosts(late)])


@pytest.mark.deep
def test_a_node_whose_only_address_changes_is_found_again(kernels: Path, tmp_path: Path) -> None:
    net = FindsItself(tmp_path, 3, kernels)
    moving, other = net.nodes[1], "10.213.7.101"
    with net:
        job = net.submit("high.py", recovery__spare="none", job__args=["--pace-seconds", "0.4"])
        net.wait_whole(job, 2)

        net.take_address(moving, net.host(moving))
        net.give_address(moving, other)

        here = {node: [net.host(node)] for node in net.nodes}
        net.wait_known(here | {moving: [other]})
        net.wait_view(net.nodes)
        net.wait_for("a world of all", lambda: len(net.status(job)["ranks"]) == len(net.nodes))
        net.hurry(job)
        assert net.wait_end(job)["state"] == "finished", net.report("its end", job)


@pytest.mark.deep
def test_nodes_that_were_all_off_and_moved_meet_where_one_was_last(
    kernels: Path, tmp_path: Path
) -> None:
    net = FindsItself(tmp_path, 3, kernels)
    other = {node: f"10.213.7.10{number}" for number, node in enumerate(net.nodes)}
    first, stays, last = net.nodes

    def move(node: str) -> None:
        net.take_address(node, net.host(node))
        net.give_address(node, other[node])

    with net:
        move(stays)
        net.wait_known({node: [net.host(node)] for node in net.nodes} | {stays: [other[stays]]})
        net.wait_for("all to have noted that", lambda: all(
            other[stays] in whereabouts.read(net.home / node).get(NodeId(stays), [""])[0]
            for node in (first, last)
        ))  # fmt: skip
        net.kill_nodes(net.nodes)
        for node in (first, last):
            move(node)
        net.revive()
        net.wait_known({node: [other[node]] for node in net.nodes})
