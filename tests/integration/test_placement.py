"""Which nodes hold a checkpoint and which checkpoints are kept, as real daemons' disks say."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticd.checkpoints import manifest
from elasticd.checkpoints.layout import PARTIAL
from elasticd.checkpoints.manifest import Manifest
from tests.integration.cluster import Cluster

pytestmark = [pytest.mark.process, pytest.mark.deep]

DOMAINS = {"node-0": "desk", "node-1": "desk", "node-2": "shelf", "node-3": "shelf"}


def found(cluster: Cluster, job: str, node: str = "node-*") -> list[Manifest]:
    """The manifests on the disks of final checkpoints, by step; the nodes that name them agree."""
    known: dict[int, Manifest] = {}
    for path in cluster.home.glob(f"{node}/checkpoints/{job}/*/manifest.msgpack"):
        if path.parent.suffix == PARTIAL:
            continue
        with contextlib.suppress(FileNotFoundError):  # it is removed meanwhile
            one = manifest.decode(path.read_bytes(), str(path))
            assert known.setdefault(one.step, one) == one
    return [known[step] for step in sorted(known)]


def wait_kept(cluster: Cluster, job: str, steps: list[int]) -> None:
    """Until each node's disk has the final checkpoints of these steps and no others."""

    def look() -> bool:
        return all([m.step for m in found(cluster, job, node)] == steps for node in DOMAINS)

    cluster.wait_for(f"only the checkpoints of {steps}", look)


def committed(cluster: Cluster, job: str) -> list[int]:
    """The steps of all checkpoints that there were, once there is that of the last one."""

    def look() -> list[int]:
        steps = sorted({event["step"] for event in cluster.kinds(job, "checkpoint_committed")})
        return steps if steps[-1:] == [30] else []

    return cluster.wait_for("the last checkpoint", look)


def holders(cluster: Cluster, job: str, one: Manifest, shard: int) -> set[str]:
    """The nodes on whose disks the shard is."""
    name = f"{one.step:08d}-{one.stamp[:12]}/shard-{shard:05d}-of-{one.count:05d}.safetensors"
    paths = cluster.home.glob(f"node-*/checkpoints/{job}/{name}")
    return {path.relative_to(cluster.home).parts[0] for path in paths}


def test_replicas_are_in_other_failure_domains_and_the_best_state_is_kept(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster(tmp_path, 4)
    for node, domain in DOMAINS.items():
        cluster.configure(node, failure_domain=domain)
    with cluster:
        figures: dict[str, Any] = {
            "train__steps": 30,
            "checkpoint__every_steps": 5,
            "checkpoint__keep_best": "loss",
            # One is skipped where the one before is still being written.
            "job__args": ["--pace-seconds", "0.1"],
        }
        job = cluster.submit("high.py", checkpoint__keep=100, **figures)
        digest = cluster.wait_end(job)["digest"]
        made = found(cluster, job)
        assert [one.step for one in made] == committed(cluster, job)
        # Without a word on domains the shard of rank 0 would be on ranks 0 and 1.
        for one in made:
            for shard in range(one.count):
                where = holders(cluster, job, one, shard)
                assert where == set(one.holders[shard])
                assert {DOMAINS[node] for node in where} == {"desk", "shelf"}, (one.step, where)

        scored = {one.step: one.metric for one in made if one.metric is not None}
        assert len(scored) == len(made) - 1, "nothing is known of the loss of step 0"
        for which, best in (("lowest", min), ("highest", max)):
            again = cluster.submit("high.py", checkpoint__keep=1, checkpoint__best=which, **figures)
            assert cluster.wait_end(again)["digest"] == digest
            had = [step for step in committed(cluster, again) if step in scored]
            wait_kept(cluster, again, sorted({best(had, key=scored.__getitem__), 30}))


def test_what_a_job_has_that_ended_on_one_node_is_copied_to_who_comes_back(
    cluster: Cluster,
) -> None:
    cluster.kill_nodes(cluster.nodes[1:])
    job = cluster.submit("high.py", train__steps=10)
    cluster.wait_end(job)

    def replicas() -> int:
        told = json.loads(cluster.command("checkpoints", "list", job, "--json"))
        newest: int = told["checkpoints"][-1]["replicas"]
        return newest

    assert replicas() == 1
    cluster.revive()
    cluster.wait_for("a second copy", lambda: replicas() == 2)
    cluster.command("checkpoints", "verify", job)
