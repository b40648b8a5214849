"""What is removed while a job trains: by ``[keep]``, by ``forget``, and a node that is gone."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticd.settings.keep import KeepRules
from elasticd.shell.storage.usage import OF_JOBS, RECREATED
from tests.integration import hasty
from tests.integration.cluster import Cluster
from tests.integration.test_digest import check

pytestmark = pytest.mark.process

HERE = "node-0"
ENDED_JOBS = 2


def kinds_of(cluster: Cluster, job: str, node: str = HERE) -> set[str]:
    """What there is of a job on the disk of a node."""
    return {kind for kind, name in OF_JOBS.items() if (cluster.home / node / name / job).exists()}


def disk(cluster: Cluster) -> dict[str, Any]:
    """What ``elasticctl disk`` says of the first node, by job."""
    found = json.loads(cluster.command("disk", "--json", "--home", cluster.home / HERE))
    assert found["node"] == HERE and found["bytes"] > 0
    return {each["job"]: each for each in found["jobs"]}


@pytest.mark.deep
def test_what_is_removed_spares_the_job_that_trains(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    made = make_cluster(tmp_path, 3)
    for node in made.nodes:
        made.configure(node, keep=KeepRules(jobs=1), return_seconds=60)
    with made as cluster:
        alone = cluster.submit("high.py", at=HERE, world__max=1)
        expected = cluster.wait_end(alone)["digest"]
        ended = [cluster.submit("high.py", train__steps=2) for _ in range(ENDED_JOBS)]
        for job in ended:
            cluster.wait_end(job)
        last = ended[-1]
        before = {job: kinds_of(cluster, job) for job in ended}
        assert all({"logs", "work"} <= kinds for kinds in before.values()), before
        # Gone with all it has, before the job begins: that it dies is not the question here.
        cluster.kill_node("node-2")
        refused = cluster.run("nodes", "forget", HERE)
        assert refused.returncode == 1 and "stop its daemon first" in refused.stderr

        job = cluster.submit("high.py", job__args=["--pace-seconds", "0.4"])
        world = cluster.wait_whole(job, 2)
        assert {rank["node"] for rank in world["ranks"]} == {HERE, "node-1"}
        sizes = disk(cluster)
        assert {job, *ended} <= set(sizes) and all(each["bytes"] for each in sizes.values()), sizes

        cluster.program = [sys.executable, hasty.__file__]
        cluster.restart_daemon(HERE)
        beyond = ended[:-1]
        cluster.wait_for(
            "what can be made again is removed",
            lambda: not any(kinds_of(cluster, each) & set(RECREATED) for each in beyond),
        )
        for each in beyond:
            assert kinds_of(cluster, each) >= before[each] - set(RECREATED), "results stay"
            assert kinds_of(cluster, each, "node-1"), "the other daemon has not looked yet"
        # There may be more of it since its end: losses are looked at once a second.
        assert kinds_of(cluster, last) >= before[last], "[keep] jobs = 1"
        sizes = disk(cluster)
        assert all("work" not in sizes[each] for each in beyond if each in sizes), sizes
        assert {job, last} <= set(sizes), sizes
        listed = {each["id"] for each in json.loads(cluster.command("jobs", "--json"))["jobs"]}
        assert listed == {alone, job, *ended}, "the records stay"

        assert cluster.command("nodes", "forget", "node-2") == "node-2 forgotten\n"
        for node in (HERE, "node-1"):
            named = cluster.command("nodes", "--home", cluster.home / node)
            assert "node-2" not in named and "node-1" in named, named
        assert cluster.command("forget", last) == f"{last} forgotten\n"
        cluster.wait_for(
            "nothing is left of it",
            lambda: (
                not any(
                    kinds_of(cluster, last, node)
                    or (cluster.home / node / "events" / f"{last}.events").exists()
                    for node in (HERE, "node-1")
                )
            ),
        )
        assert last not in disk(cluster)

        now = cluster.wait_whole(job, cluster.status(job)["step"] + 1)
        pids = [{rank["pid"] for rank in status["ranks"]} for status in (world, now)]
        assert pids[0] == pids[1], cluster.report("other trainers", job)
        assert not cluster.broken(job), cluster.report("something broke", job)
        assert len(cluster.unheard(job)) <= 1, cluster.report("missed more than once", job)
        check(cluster, job, "high.py", expected)
