"""Daemons on one network, which announce themselves there by Bonjour."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.words.requests.looking import ShowStatus
from elasticd.shell.storage import papers
from elasticd.trust.authority import Authority, admit
from elasticd.types import NodeId
from tests.integration.cluster import ELASTICCTL
from tests.integration.netns import DAEMON_PORT, NetCluster, why_not

pytest.importorskip("zeroconf", reason="needs elasticd[discovery]")
pytestmark = [
    pytest.mark.process,
    pytest.mark.deep,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "namespaces"),
]

SECONDS = 60
ANNOUNCE = """
import sys, time
from elasticd.shell.network.bonjour import Announcement
from elasticd.shell.network.mdns import Mdns
name, cluster, host, lie = sys.argv[1:]
Mdns.on([host]).announce(Announcement(name, cluster, False, (lie,), 7070))
time.sleep(600)
"""


class Announced(NetCluster):
    """Its daemons find their addresses themselves."""

    def configure(self, node: str, **settings: Any) -> None:
        everywhere = {"listen": f"0.0.0.0:{DAEMON_PORT}", "advertise": ()}
        super().configure(node, **settings | everywhere)

    def move(self, node: str) -> None:
        """To another address, of which nobody was told."""
        self.take_address(node, self.host(node))
        self.give_address(node, f"10.213.7.10{self.nodes.index(node)}")

    def on(self, node: str, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """``elasticctl`` on the machine of a node."""
        return subprocess.run(
            [*self.launcher(node), ELASTICCTL, "--home", home, *words],
            env=self.environment, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip


def test_nodes_that_were_all_off_and_all_moved_find_each_other(tmp_path: Path) -> None:
    net = Announced(tmp_path, 3)
    with net:
        net.kill_nodes(net.nodes)
        for node in net.nodes:
            net.move(node)
        net.revive()


def test_a_token_is_taken_where_bonjour_finds_the_node_that_made_it(tmp_path: Path) -> None:
    """Which has moved since: nobody is at the token's addresses."""
    net = Announced(tmp_path, 2)
    first, other = net.nodes
    guest = tmp_path / "guest"
    with net:
        token = net.on(first, net.home / first, "cluster", "token").stdout.strip()
        net.move(first)

        def joined() -> subprocess.CompletedProcess[str] | None:
            words = ("cluster", "join", token, "--node-id", "guest", "--listen", "10.213.7.2:7171")
            done = net.on(other, guest, *words)
            return done if done.returncode == 0 else None

        done = net.wait_for("the guest to be let in", joined)
        assert "looking for that Mac by Bonjour" in done.stderr
        assert papers.read(guest).cluster_id == papers.read(net.home / first).cluster_id


class TwoClusters(Announced):
    """The first two nodes are of one, the others of another."""

    @property
    def halves(self) -> tuple[list[str], list[str]]:
        return self.nodes[:2], self.nodes[2:]

    def configure(self, node: str, **settings: Any) -> None:
        half = next(half for half in self.halves if node in half)
        peers = tuple(self.answers(n)[0] for n in half if n != node)
        super().configure(node, **settings | {"peers": peers})

    def _furnish(self) -> None:
        super()._furnish()
        founder, secret = Authority.make(), b"another secret that 32 bytes have"[:32]
        for node in self.halves[1]:
            papers.write(self.home / node, admit(founder, NodeId(node), secret))

    def _agree(self, members: list[str]) -> bool:
        if members == self.nodes:
            return all(super(TwoClusters, self)._agree(half) for half in self.halves)
        return super()._agree(members)

    def listed(self, node: str) -> list[str]:
        return sorted(each["id"] for each in self.client_of(node).request(ShowStatus())["nodes"])

    def said(self, node: str) -> str:
        return (self.home / node / "daemon.log").read_text()


@contextmanager
def lying(net: NetCluster, at: str, name: str, cluster: str, there: str) -> Iterator[None]:
    """Somebody on the network says that ``name`` is where ``there`` is."""
    words = [name, cluster, net.host(at), net.host(there)]
    command = [*net.launcher(at), sys.executable, "-c", ANNOUNCE, *words]
    liar = subprocess.Popen(command, env=net.environment)
    try:
        yield
    finally:
        liar.kill()
        liar.wait()


def test_two_clusters_on_one_network_find_and_refuse_each_other(tmp_path: Path) -> None:
    net = TwoClusters(tmp_path, 4)
    (first, lost), (foreign, liar) = net.halves
    with net:
        before = net.view_of(foreign)
        member = papers.read(net.home / first)
        net.kill_nodes([lost])
        name = member.name_of(NodeId(lost))
        with lying(net, liar, name, member.cluster_id[:32], foreign):
            hint = f"address={net.host(foreign)}:{DAEMON_PORT}"
            net.wait_for("it to be looked for there", lambda: hint in net.said(first))
            net.wait_for("it to be refused", lambda: "it is of another cluster" in net.said(first))
        assert net.listed(first) == [first, lost] and net.listed(foreign) == [foreign, liar]
        assert net.view_of(foreign) == before
        for name in (first, lost, papers.read(net.home / first).cluster_id):
            assert name not in net.said(foreign)
        net.revive()
