"""Cables that are pulled and packets that vanish, between daemons in network namespaces."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.netns import NetCluster, why_not

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "namespaces"),
]

Undisturbed = Callable[[str], str]
SLOW = ["--pace-seconds", "0.012"]
SLOWER = ["--pace-seconds", "0.04"]
DISK_MIB = 96


@pytest.fixture(scope="module")
def shared(kernels: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetCluster]:
    cluster = NetCluster(tmp_path_factory.mktemp("net"), 4, kernels, disk_mib=DISK_MIB)
    try:
        with cluster:
            yield cluster
    finally:
        cluster.unmount()


@pytest.fixture
def net(shared: NetCluster) -> Iterator[NetCluster]:
    """Four nodes that hear one another."""
    shared.up()
    try:
        yield shared
    finally:
        shared.join()


def kinds(net: NetCluster, job: str | None, kind: str, node: str | None = None) -> list[Any]:
    return [event for event in net.events(job, node) if event["kind"] == kind]


def check(net: NetCluster, job: str, expected: str) -> dict[str, Any]:
    status = net.wait_end(job)
    assert status["digest"] == expected, net.report("another digest", job)
    assert status["lost_steps"] == 0, net.report("lost steps", job)
    net.check_ledger(job, status["steps"], cumulative=True)
    return status


@pytest.mark.parametrize("how", ["pulled", pytest.param("deaf", marks=pytest.mark.deep)])
def test_a_silent_member_is_left_and_taken_back(
    net: NetCluster, undisturbed: Undisturbed, how: str
) -> None:
    expected = undisturbed("high.py")
    job = net.submit("high.py", job__args=SLOW, world__max=3)
    ranks = net.wait_whole(job, 5)["ranks"]
    victim = ranks[1]["node"]
    others = [node for node in net.nodes if node != victim]
    if how == "pulled":
        net.pull(victim)
    else:
        net.deafen(victim, *others)
    net.wait_view(others)
    net.join()
    net.wait_view(net.nodes)
    check(net, job, expected)
    lost = kinds(net, job, "fault_detected", others[0])
    assert victim in {event["node"] for event in lost}, net.report("nobody missed it", job)


def test_two_halves_go_on_meet_and_are_one_lineage(
    net: NetCluster, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("high.py")
    job = net.submit("high.py", job__args=SLOWER, checkpoint__every_steps=5)
    net.wait_whole(job, 5)
    one, other = net.nodes[:2], net.nodes[2:]
    net.part(one, other)
    net.wait_view(one)
    net.wait_view(other)
    reached = {node: net.status_at(node, job)["step"] for node in (one[0], other[0])}
    for node, step in reached.items():
        net.wait_for(
            f"{node} to go on without the other half",
            lambda node=node, step=step: net.status_at(node, job)["step"] > step + 5,  # type: ignore[misc]
        )
    net.join()
    net.wait_view(net.nodes)
    check(net, job, expected)
    rows = net.client.request({"do": "checkpoints", "job": job})["checkpoints"]
    final = {row["lineage"] for row in rows if row["step"] == 60 and row["consistent"]}
    assert len(final) == 1, net.report(f"lineages at the end: {rows}", job)
    formed = kinds(net, job, "world_formed")
    assert {1, 2} & {len(event["members"]) for event in formed}, net.report("no half", job)


@pytest.mark.deep
def test_a_partial_partition_among_four_leaves_a_view_that_works(
    net: NetCluster, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("high.py")
    job = net.submit("high.py", job__args=SLOW)
    ranks = net.wait_whole(job, 5)["ranks"]
    one, other = ranks[0]["node"], ranks[2]["node"]  # no neighbours in the ring
    net.deafen(one, other)
    net.deafen(other, one)
    status = check(net, job, expected)
    assert status["steps"] == 60
    net.join()
    net.wait_view(net.nodes)


@pytest.mark.deep
def test_a_stopped_node_wakes_up_to_another_world(
    net: NetCluster, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("high.py")
    job = net.submit("high.py", job__args=SLOW)
    victim = net.wait_whole(job, 5)["ranks"][1]["node"]
    processes = [one for one in net.processes(victim) if one.alive]
    for one in processes:
        os.kill(one.pid, signal.SIGSTOP)
    net.wait_view([node for node in net.nodes if node != victim])
    for one in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGCONT)
    net.wait_view(net.nodes)
    check(net, job, expected)


@pytest.mark.deep
def test_a_leader_with_a_full_disk_says_so_and_leaves(
    net: NetCluster, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("high.py")
    job = net.submit("high.py", job__args=SLOW, checkpoint__every_steps=3)
    net.wait_whole(job, 5)
    victim = net.view()["leader"]
    try:
        net.fill_disk(victim)
        others = [node for node in net.nodes if node != victim]
        net.wait_view(others)

        def lost() -> list[dict[str, Any]]:
            found = kinds(net, None, "node_lost", others[0])
            return [e for e in found if "No space left" in e["reason"]]

        assert net.wait_for("the reason", lost)[-1]["node"] == victim
    finally:
        net.free_disk(victim)
    net.up()
    check(net, job, expected)


@pytest.mark.deep
def test_the_leader_and_another_die_at_once(net: NetCluster, undisturbed: Undisturbed) -> None:
    expected = undisturbed("high.py")
    job = net.submit("high.py", job__args=SLOW, world__max=3)
    ranks = net.wait_whole(job, 5)["ranks"]
    leader = net.view()["leader"]
    second = next(r["node"] for r in ranks if r["node"] != leader)
    net.kill_nodes([leader, second])
    check(net, job, expected)
