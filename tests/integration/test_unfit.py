"""Nodes on which a job's script fails, or builds something else: the job goes on without them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster
from tests.integration.test_digest import check

pytestmark = pytest.mark.process

Undisturbed = Callable[[str], str]
SLOW = ["--pace-seconds", "0.3"]
"""Commands run meanwhile, which take seconds to start on a busy machine."""


@contextmanager
def unmounted(cluster: Cluster, node: str) -> Iterator[Path]:
    """The samples can't be read there until this ends, or the file is removed."""
    sign = cluster.home / node / "unmounted"
    sign.touch()
    try:
        yield sign
    finally:
        sign.unlink(missing_ok=True)


def wait_ranks(cluster: Cluster, job: str, count: int) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        status = cluster.status(job)
        return status if len(status["ranks"]) == count and status["step"] else None

    return cluster.wait_for(f"{count} ranks", look)


def test_a_node_without_its_data_is_left_out_until_it_has_them(
    cluster: Cluster, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("high.py")
    with unmounted(cluster, "node-1"):
        job = cluster.submit("high.py", recovery__spare="none", job__args=SLOW)
        status = wait_ranks(cluster, job, 3)
        ((node, reason),) = [(u["node"], u["reason"]) for u in status["unfit"]]
        assert node == "node-1" and reason.endswith("node-1/data is not mounted")
        assert f"{job} goes on without node-1" in " ".join(cluster.command("nodes").split())
        assert "not mounted" in cluster.command("status", job)
    (told,) = cluster.kinds(job, "node_unfit")
    assert (told["node"], told["job"]) == ("node-1", job) and "not mounted" in told["reason"]
    retried = json.loads(cluster.command("retry", job, "--json"))
    assert retried == {"id": job, "nodes": ["node-1"], "relief": 0}
    status = wait_ranks(cluster, job, 4)
    assert status["unfit"] == []
    check(cluster, job, "high.py", expected)
    assert not cluster.broken(job), cluster.report("something broke", job)


@contextmanager
def dead_link(path: Path) -> Iterator[None]:
    """In the place of a folder, until this ends."""
    aside = path.with_name("aside")
    if path.exists():
        path.rename(aside)
    path.symlink_to("nowhere")
    try:
        yield
    finally:
        path.unlink()
        if aside.exists():
            aside.rename(path)


@pytest.mark.deep
def test_a_node_without_room_for_output_is_left_out_and_its_daemon_lives(
    cluster: Cluster, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("high.py")
    output = cluster.home / "node-1" / "output"
    daemon = cluster.processes("node-1")[0]
    with dead_link(output):
        job = cluster.submit("high.py", job__args=SLOW)
        status = wait_ranks(cluster, job, 3)
        ((node, reason),) = [(u["node"], u["reason"]) for u in status["unfit"]]
        assert node == "node-1" and str(output) in reason and "remove" in reason
    cluster.command("retry", job)
    wait_ranks(cluster, job, 4)
    assert cluster.processes("node-1")[0] == daemon and daemon.alive
    check(cluster, job, "high.py", expected)


@pytest.mark.deep
def test_a_member_whose_disk_goes_and_a_newcomer_without_one_end_nothing(
    cluster: Cluster, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", job__args=SLOW)
    cluster.wait_whole(job, 3)
    with unmounted(cluster, "node-2"), unmounted(cluster, "node-3"):
        cluster.kill_node("node-3")
        cluster.revive()

        def both() -> bool:
            return [u["node"] for u in cluster.status(job)["unfit"]] == ["node-2", "node-3"]

        cluster.wait_for("both to be left out", both)
        check(cluster, job, "high.py", expected)


def test_a_node_that_builds_another_model_is_left_out(cluster: Cluster) -> None:
    job = cluster.submit("bad_differs.py", recovery__spare="none")
    status = cluster.wait_end(job)
    ((node, reason),) = [(u["node"], u["reason"]) for u in status["unfit"]]
    assert node == "node-1" and "every rank must build the same model" in reason
    assert all("node-1" not in e["members"] for e in cluster.kinds(job, "world_formed"))
