"""Cables that are pulled and packets that vanish, between daemons in network namespaces."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.words.requests.checkpoints import ListCheckpoints
from elasticd.types import JobId
from tests.integration.cluster import STEPS
from tests.integration.netns import NetCluster, why_not

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "namespaces"),
]

Undisturbed = Callable[[str], str]
SLOW = ["--pace-seconds", "0.05"]
SLOWER = ["--pace-seconds", "0.075"]
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


def check(net: NetCluster, job: str, expected: str) -> dict[str, Any]:
    net.hurry(job)
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
    job = net.submit("high.py", recovery__spare="none", job__args=SLOW, world__max=3)
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
    lost = net.kinds(job, "fault_detected", others[0])
    assert victim in {event["node"] for event in lost}, net.report("nobody missed it", job)


@pytest.mark.deep
def test_two_halves_go_on_meet_and_are_one_lineage(
    net: NetCluster, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("high.py")
    job = net.submit("high.py", recovery__spare="none", job__args=SLOWER, checkpoint__every_steps=5)
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
    rows = net.client.request(ListCheckpoints(JobId(job)))["checkpoints"]
    final = {row["lineage"] for row in rows if row["step"] == STEPS and row["consistent"]}
    assert len(final) == 1, net.report(f"lineages at the end: {rows}", job)
    formed = net.kinds(job, "world_formed")
    assert {1, 2} & {len(event["members"]) for event in formed}, net.report("no half", job)


@pytest.mark.deep
@pytest.mark.parametrize("second", [1, 2], ids=["neighbours", "opposites"])
@pytest.mark.parametrize("after", [0, 1], ids=["the-leader", "others"])
def test_of_four_two_are_cut_apart(
    net: NetCluster, undisturbed: Undisturbed, second: int, after: int
) -> None:
    """The ring is laid past their link, nobody is given up, and both hear how the job went."""
    expected = undisturbed("high.py")
    net.wait_links()
    job = net.submit("high.py", recovery__spare="none", job__args=["--pace-seconds", "0.15"])
    nodes = [rank["node"] for rank in net.wait_whole(job, 5)["ranks"]]
    first = (nodes.index(net.view()["leader"]) + after) % len(nodes)
    nodes = nodes[first:] + nodes[:first]
    joined = len(net.kinds(None, "node_joined"))
    cut_apart(net, nodes[0], nodes[second])
    check(net, job, expected)
    for node in nodes:
        net.wait_for(
            f"{node} to hear of the end",
            lambda node=node: net.kinds(job, "job_finished", node),  # type: ignore[misc]
        )
    for node in nodes[0], nodes[second]:
        said = net.client_of(node).request(ListCheckpoints(JobId(job)))
        assert said["silent"] == {} and said["checkpoints"][-1]["replicas"] == 2, said
    worlds = net.kinds(job, "world_formed")
    assert all(len(world["members"]) == 4 for world in worlds), net.report("one too few", job)
    if second == 1:
        past = [world for world in worlds if "past links that are dead" in world["reason"]]
        assert past, net.report("another way", job)
        places = [past[0]["members"].index(node) for node in nodes[:2]]
        assert abs(places[0] - places[1]) == 2, past
    else:
        assert not net.faults(job), net.report("no ring went that way", job)
    assert len(net.kinds(None, "node_joined")) == joined, "nobody had left"


@pytest.mark.deep
def test_of_three_two_are_cut_apart_on_one_of_two_networks(
    kernels: Path, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    """All are neighbours: only this pair's link moves to the other addresses."""
    expected = undisturbed("high.py")
    with NetCluster(tmp_path, 3, kernels, addresses=2) as net:
        net.wait_links()
        job = net.submit("high.py", recovery__spare="none", job__args=SLOW)
        nodes = [rank["node"] for rank in net.wait_whole(job, 5)["ranks"]]
        cut_apart(net, nodes[0], nodes[1])
        check(net, job, expected)
        worlds = net.kinds(job, "world_formed")
        assert [world["members"] for world in worlds] == [nodes] * len(worlds), "nobody left"
        (before, after) = net.hosts(nodes[1])
        text = f"{nodes[0]} reaches {nodes[1]} at {after} instead of {before}"
        moved = [world for world in worlds if text in world["reason"]]
        assert moved and moved[0]["rung"] == "retry", net.report("no other address", job)
        # The two may be told apart once more while their other link is not proved yet.
        faults = net.faults(job)
        assert faults and all(
            fault["fault"] == "link_lost" and fault["node"] in nodes[:2] for fault in faults
        ), net.report("another fault", job)


@pytest.mark.deep
def test_of_three_two_are_cut_apart_with_no_other_way(
    kernels: Path, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    """No ring of three goes without that link: one of the two waits until it is back."""
    expected = undisturbed("high.py")
    with NetCluster(tmp_path, 3, kernels) as net:
        job = net.submit("high.py", job__args=["--pace-seconds", "0.15"])
        nodes = [rank["node"] for rank in net.wait_whole(job, 5)["ranks"]]

        def worlds() -> list[Any]:
            return net.kinds(job, "world_formed")

        known = len(worlds())
        cut_apart(net, nodes[0], nodes[1])

        def two() -> dict[str, Any] | None:
            return next((w for w in worlds()[known:] if len(w["members"]) == 2), None)

        assert nodes[2] in net.wait_for("a ring of two", two)["members"]
        net.join()
        net.wait_for("a ring of three", lambda: len(worlds()[-1]["members"]) == 3)
        check(net, job, expected)


def cut_apart(net: NetCluster, one: str, other: str) -> None:
    """Drop what one sends to the other's first address, both ways."""
    net.deafen(one, other)
    net.deafen(other, one)


@pytest.mark.deep
def test_a_stopped_node_wakes_up_to_another_world(
    net: NetCluster, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("high.py")
    job = net.submit("high.py", job__args=SLOW)
    victim = net.wait_whole(job, 5)["ranks"][1]["node"]
    processes = [one for one in net.processes(victim) if one.alive]
    for one in processes:
        with contextlib.suppress(ProcessLookupError):
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
    # So slow that it is not over before the disk is full: then the leader would write nothing more.
    job = net.submit(
        "high.py",
        job__args=["--pace-seconds", "0.125"],
        checkpoint__every_steps=3,
    )
    net.wait_whole(job, 5)
    victim = net.view()["leader"]
    try:
        net.fill_disk(victim)
        others = [node for node in net.nodes if node != victim]
        net.wait_view(others)

        def lost() -> list[dict[str, Any]]:
            found = net.kinds(None, "node_lost", others[0])
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
