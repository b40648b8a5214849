"""Nodes with two addresses, of which one goes dead under a running ring."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli.homes import node_homes
from elasticd.config import FILE_NAME, dump, load, split_address
from tests.integration.cluster import Cluster
from tests.integration.test_digest import check

pytestmark = pytest.mark.process

filtered = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("iptables") is None,
    reason="the packet filter needs Linux, root and iptables",
)
Undisturbed = Callable[[str], str]


def hosts() -> tuple[str, str]:
    """Two loopback addresses that nobody else on this machine uses."""
    own = os.getpid()
    return tuple(f"127.{64 + own % 128}.{own // 128 % 256}.{n}" for n in (1, 2))  # type: ignore[return-value]


@pytest.fixture
def cluster(tmp_path: Path, make_cluster: Callable[[Path, int], Cluster]) -> Iterator[Cluster]:
    """Three nodes, each with two addresses."""
    with make_cluster(tmp_path, 3) as made:
        made.command("local", "down")
        folders = node_homes(made.home)
        ports = [split_address(load(folder).listen)[1] for folder in folders]
        first, second = hosts()
        for folder, port in zip(folders, ports, strict=True):
            settings = replace(
                load(folder),
                listen=f"{first}:{port}",
                advertise=(f"{first}:{port}", f"{second}:{port}"),
                peers=tuple(f"{first}:{other}" for other in ports if other != port),
            )
            (folder / FILE_NAME).write_text(dump(settings))
        made.up()
        yield made


class Cut:
    """Everything to and from an address is dropped, without a word to anybody."""

    def __init__(self, address: str) -> None:
        self._rules = [("-d", address), ("-s", address)]

    def __enter__(self) -> None:
        for rule in self._rules:
            subprocess.run(["iptables", "-w", "-I", "INPUT", *rule, "-j", "DROP"], check=True)

    def __exit__(self, *_: object) -> None:
        for rule in self._rules:
            subprocess.run(["iptables", "-w", "-D", "INPUT", *rule, "-j", "DROP"], check=True)


def links(cluster: Cluster) -> list[dict[str, Any]]:
    nodes = cluster.client.request({"do": "status"})["nodes"]
    return [link for node in nodes for link in node["links"]]


@filtered
def test_a_ring_moves_to_the_other_address_and_back(
    cluster: Cluster, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("high.py")
    first, second = hosts()
    cluster.wait_for("all addresses", lambda: len(links(cluster)) == 4)
    job = cluster.submit("high.py", job__args=["--pace-seconds", "0.1"])
    cluster.wait_whole(job, 3)
    epoch = cluster.view()["epoch"]
    with Cut(first):
        faults = cluster.wait_for("the fault", lambda: kinds(cluster, job, "fault_detected"))
        assert faults[0]["fault"] == "link_lost"
        finished = cluster.wait_for("a step", lambda: kinds(cluster, job, "recovery_finished"))
        assert finished[0]["rung"] == "retry" and finished[0]["lost_steps"] == 0
        formed = kinds(cluster, job, "world_formed")[-1]
        assert f"at {second} instead of {first}" in formed["reason"]
        assert len(formed["members"]) == 3, "nobody was given up"
        states = {link["host"]: link["state"] for link in links(cluster)}
        assert states == {first: "lost", second: "up"}
        worlds = len(kinds(cluster, job, "world_formed"))
    cluster.wait_for(
        "the first address to be used again",
        lambda: len(kinds(cluster, job, "world_formed")) > worlds,
    )
    assert "instead of" not in kinds(cluster, job, "world_formed")[-1]["reason"]
    check(cluster, job, "high.py", expected)
    assert cluster.view()["epoch"] == epoch, "a dead address costs no view"


def kinds(cluster: Cluster, job: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in cluster.events(job) if event["kind"] == kind]
