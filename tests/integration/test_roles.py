"""Nodes that train nothing, with real daemons: a store's copies, a witness's vote."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.words.requests.looking import ShowStatus
from tests.integration.cluster import Cluster
from tests.integration.test_checkpoints import digest_of
from tests.integration.test_digest import check
from tests.integration.test_placement import found, holders

pytestmark = pytest.mark.process

TRAINERS, THIRD = ["node-0", "node-1"], "node-2"
STORE, WITNESS = "node-2", "node-3"


def asked(cluster: Cluster, node: str, *words: str | Path) -> dict[str, Any]:
    """The last line of what ``elasticctl --json`` prints on that node."""
    said = cluster.command(*words, "--json", "--home", cluster.home / node)
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def names_away(cluster: Cluster, node: str, job: str) -> bool:
    """Whether that node tells of all trainers that it could not ask them for their copies."""
    said: object = asked(cluster, node, "checkpoints", "list", job)["silent"]
    return said == dict.fromkeys(TRAINERS, "it is away")


def taken(cluster: Cluster, node: str, job: str) -> dict[str, int]:
    """What a job's files take on the disk of that node, by kind, as it says."""
    jobs = asked(cluster, node, "disk")["jobs"]
    return {k: v for one in jobs if one["job"] == job for k, v in one.items() if k != "id" and v}


def trained_nothing(cluster: Cluster, job: str, node: str = THIRD) -> None:
    """The node never had a child, nor was it a member of a world."""
    roles = {one.role for one in cluster.processes(node)}
    assert roles <= {"daemon"}, cluster.report(f"{node} has started {roles}", job)
    assert not (cluster.home / node / "work" / job).exists()
    for event in cluster.kinds(job, "world_formed"):
        assert node not in event["members"], cluster.report("it trains", job)


def test_a_job_goes_on_from_a_stores_copy_when_all_that_train_have_lost_their_disks(
    make_cluster: Callable[[Path, int], Cluster],
    undisturbed: Callable[[str], str],
    tmp_path: Path,
) -> None:
    expected = undisturbed("high.py")
    made = make_cluster(tmp_path, 3)
    made.configure(THIRD, roles=("store", "witness"))
    with made as cluster:
        job = cluster.submit(
            "high.py",
            recovery__spare="none",
            job__args=["--pace-seconds", "0.1"],
            checkpoint__every_steps=5,
            checkpoint__replicas=2,
        )
        cluster.wait_whole(job, 7)
        cluster.wait_for(
            "a checkpoint on the store", lambda: [m for m in found(cluster, job, THIRD) if m.step]
        )
        roles = {one["id"]: one["roles"] for one in cluster.client.request(ShowStatus())["nodes"]}
        assert roles[THIRD] == ["store", "witness"] and roles["node-0"][0] == "train"
        cluster.kill_nodes(TRAINERS)
        for node in TRAINERS:
            for kept in ("checkpoints", "archives", "work"):
                shutil.rmtree(cluster.home / node / kept)
        newest = found(cluster, job, THIRD)[-1]
        for shard in range(newest.count):
            assert holders(cluster, job, newest, shard) == {THIRD}
        why = f"{THIRD}: its role is store"
        cluster.wait_for(
            "the job to wait", lambda: why in str(cluster.status(job)["reason"]) or None
        )
        cluster.hurry(job)
        cluster.revive()
        status = cluster.wait_end(job)
        assert status["digest"] == expected, cluster.report("another digest", job)
        trained_nothing(cluster, job)
        resumed = [e["resume_step"] for e in cluster.kinds(job, "world_formed")]
        assert newest.step in resumed, cluster.report(f"not resumed at {newest.step}", job)


def test_with_a_witness_one_of_two_goes_on_though_at_most_one_side_may_train(
    make_cluster: Callable[[Path, int], Cluster],
    undisturbed: Callable[[str], str],
    tmp_path: Path,
) -> None:
    expected = undisturbed("high.py")
    made = make_cluster(tmp_path, 3)
    for node in TRAINERS:
        made.configure(node, partition="strict")
    made.configure(THIRD, partition="strict", roles=("witness",))
    with made as cluster:
        job = cluster.submit("high.py", recovery__spare="none", job__args=["--pace-seconds", "0.1"])
        cluster.wait_whole(job, 7)
        cluster.kill_node("node-1")
        alone = cluster.wait_for(
            "node-0 to train alone",
            lambda: (s := cluster.status(job))["step"] > 10 and len(s["ranks"]) == 1 and s,
        )
        assert alone["ranks"][0]["node"] == "node-0"
        assert cluster.view()["members"] == ["node-0", THIRD]
        cluster.hurry(job)
        check(cluster, job, "high.py", expected)
        trained_nothing(cluster, job)
        assert not found(cluster, job, THIRD), cluster.report("the witness has a checkpoint", job)
        for kept in ("checkpoints", "archives", "outputs", "logs"):
            left = [p for p in (cluster.home / THIRD / kept).rglob("*") if p.is_file()]
            assert not left, cluster.report(f"the witness has {left}", job)


def test_all_that_is_asked_of_checkpoints_and_outputs_is_answered_without_trainers(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    made = make_cluster(tmp_path, 4)
    made.configure(STORE, roles=("store",))
    made.configure(WITNESS, roles=("witness",))
    with made as cluster:
        job = cluster.submit(
            "writes.py", WITNESS, train__steps=12, checkpoint__every_steps=4, checkpoint__keep=2
        )
        digest = cluster.wait_end(job)["digest"]

        def whole() -> list[int]:
            """The steps of the two that all keep, once main's last files are at the store too."""
            kept = found(cluster, job, STORE)
            steps = [one.step for one in kept]
            others = [[one.step for one in found(cluster, job, node)] for node in TRAINERS]
            all_there = [STORE in holders(cluster, job, m, n) for m in kept for n in range(m.count)]
            copy = (cluster.home / STORE / "outputs" / job).glob("[0-9]*[0-9]/files/result.txt")
            agreed = len(steps) == 2 and steps[-1] == 12 and all(each == steps for each in others)
            return steps if agreed and all(all_there) and [*copy] else []

        # One is skipped where the one before is still being written.
        older, _ = cluster.wait_for("two checkpoints and main's files on the store", whole)
        assert taken(cluster, STORE, job).keys() >= {"checkpoints", "copies"}
        assert (
            not {"checkpoints", "copies", "outputs", "work"} & taken(cluster, WITNESS, job).keys()
        )
        assert asked(cluster, WITNESS, "checkpoints", "verify", job)["damaged"] == 0
        listed = asked(cluster, WITNESS, "checkpoints", "list", job)["checkpoints"]
        at_store = [(row["step"], STORE in row["holders"]) for row in listed]
        assert at_store == [(older, True), (12, True)]

        rotten = next((cluster.home / STORE / "checkpoints" / job).glob("00000012-*/shard-00000-*"))
        written = rotten.read_bytes()
        rotten.write_bytes(written[:-1] + bytes([written[-1] ^ 0x10]))
        told = cluster.wait_for(
            "word of the store's rotten copy", lambda: cluster.kinds(job, "checkpoint_repaired")
        )
        assert [e["node"] for e in told] == [STORE] and rotten.read_bytes() == written

        pruned = asked(cluster, WITNESS, "checkpoints", "prune", job, "--keep", "1")
        assert [row["step"] for row in pruned["removed"]] == [older] and pruned["failures"] == []
        assert [one.step for one in found(cluster, job, STORE)] == [12]

        # Of those that train nothing is left: what is to be had, the store has.
        cluster.kill_nodes(TRAINERS)
        for node in (STORE, WITNESS):
            cluster.wait_for("word of who was not asked", partial(names_away, cluster, node, job))
            out = tmp_path / f"{node}.safetensors"
            assert (
                asked(cluster, node, "checkpoints", "export", job, "--out", out)["digest"] == digest
            )
            assert digest_of(out) == digest
            said = asked(cluster, node, "outputs", job, "--out", tmp_path / node)
            assert said["node"] == STORE and said["copy"]
            assert (tmp_path / node / "result.txt").read_text() == digest
        trained_nothing(cluster, job, STORE)
        trained_nothing(cluster, job, WITNESS)
        cluster.command("forget", job, "--yes", "--home", cluster.home / WITNESS)

        def gone() -> bool:
            # The store keeps for a minute what another node has asked it to, whatever is known.
            archives = [*(cluster.home / WITNESS / "archives").iterdir()]
            return not (archives or taken(cluster, STORE, job) or taken(cluster, WITNESS, job))

        cluster.wait_for("nothing of the job on either", gone)
