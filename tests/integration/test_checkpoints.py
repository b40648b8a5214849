"""Checkpoints of real daemons: looked at, exported, pruned, spoilt, lost and restored."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from elasticd.checkpoints.codec import model_digest
from elasticd.core.words.requests.checkpoints import ListCheckpoints
from elasticd.types import JobId
from tests.checkpoint import judge
from tests.integration.cluster import Cluster

pytestmark = pytest.mark.process

Make = Callable[[Path, int], Cluster]


def rows(cluster: Cluster, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cluster.command("checkpoints", "list", job, "--json"))[
        "checkpoints"
    ]
    return found


def asked(cluster: Cluster, job: str) -> list[dict[str, Any]]:
    """As :func:`rows`, without a process: for who asks often."""
    found: list[dict[str, Any]] = cluster.client.request(ListCheckpoints(JobId(job)))["checkpoints"]
    return found


def replicas(cluster: Cluster, job: str, step: int) -> list[Path]:
    return sorted(cluster.home.glob(f"node-*/checkpoints/{job}/{step:08d}-*/shard-*"))


def finals(cluster: Cluster, job: str) -> list[Path]:
    """The manifests of final checkpoints."""
    found = cluster.home.glob(f"node-*/checkpoints/{job}/*/manifest.msgpack")
    return [path for path in found if not path.parent.name.endswith(".partial")]


def flip_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 0x10
    path.write_bytes(content)


def wait_event(cluster: Cluster, job: str, kind: str, count: int) -> None:
    cluster.wait_for(
        f"{count} times {kind}",
        lambda: sum(e["kind"] == kind for e in cluster.events(job)) >= count,
    )


def whole_replicas(cluster: Cluster, job: str) -> int:
    """As verify counts them: beside a slow node another one may have taken a copy, too."""
    said = cluster.command("checkpoints", "verify", job)
    found = re.match(r"([0-9]+) replicas of shards are as they were written, 0 are not", said)
    assert found, said
    return int(found[1])


def spoil_together(cluster: Cluster, job: str, spoilt: dict[Path, bytes]) -> None:
    """Write these over all replicas of one shard; returns when two nodes can't repair theirs.

    A second after a change a node repairs its own from another: where we are held up between two
    writes, from one that is not spoilt yet. Then all are spoilt once more.
    """

    def repaired() -> int:
        return len(cluster.kinds(job, "checkpoint_repaired"))

    for _ in range(5):
        before = repaired()
        for path, content in spoilt.items():
            path.write_bytes(content)

        def answered(before: int = before) -> str:
            newest = dict[str, str]()
            for event in cluster.events(job):
                if event["kind"] in ("checkpoint_damaged", "checkpoint_repaired"):
                    newest[event["node"]] = event["kind"]
            if list(newest.values()).count("checkpoint_damaged") >= 2:
                return "damaged"
            return "repaired" if repaired() > before else ""

        if cluster.wait_for("word of the spoilt replicas", answered) == "damaged":
            return
    raise AssertionError(cluster.report("one was repaired each time", job))


def digest_of(path: Path) -> str:
    loaded: Any = mx.load(str(path))
    return model_digest(loaded)


def test_looked_at_exported_and_pruned(cluster: Cluster, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"world__max": 3, "train__steps": 30, "checkpoint__every_steps": 5}
    job = cluster.submit(
        "high.py", recovery__spare="none", job__args=["--pace-seconds", "0.01"], **settings
    )
    digest = cluster.wait_end(job)["digest"]

    def kept() -> bool:
        found = asked(cluster, job)
        whole = [row for row in found if row["consistent"] and row["replicas"] >= 2]
        return len(found) == len(whole) == 3

    # A node may finish one, and remove what is spare, a moment after the job's end.
    cluster.wait_for("three whole checkpoints", kept)
    found = rows(cluster, job)
    steps = [row["step"] for row in found]
    # A slow disk has one skipped: then there is an older one.
    assert steps[-1] == 30 and all(step % 5 == 0 for step in steps), steps
    assert found[-1]["digest"] == digest
    assert whole_replicas(cluster, job) >= 18

    out = tmp_path / "out.safetensors"
    cluster.command("checkpoints", "export", job, "--out", out, "--optimizer")
    assert digest_of(out) == digest
    said = json.loads(cluster.command(
        "checkpoints", "export", job, "--out", tmp_path / "set", "--shard-bytes", "1000",
        "--step", str(steps[0]), "--json",
    ))  # fmt: skip
    assert said["digest"] == found[0]["digest"] and len(said["files"]) > 2

    dry = json.loads(
        cluster.command("checkpoints", "prune", job, "--keep", "1", "--dry-run", "--json")
    )
    assert [row["step"] for row in dry["removed"]] == steps[:-1]
    assert [row["step"] for row in rows(cluster, job)] == steps
    cluster.command("checkpoints", "prune", job, "--keep", "0")
    assert [row["step"] for row in rows(cluster, job)] == [30]

    # By hand, beneath running daemons: they notice, and each shard has another replica.
    flip_last_byte(replicas(cluster, job, 30)[0])
    wait_event(cluster, job, "checkpoint_repaired", 1)
    replicas(cluster, job, 30)[1].unlink()
    wait_event(cluster, job, "checkpoint_repaired", 2)
    assert whole_replicas(cluster, job) >= 6

    cut = [path for path in replicas(cluster, job, 30) if "shard-00000" in path.name]
    spoil_together(cluster, job, {path: path.read_bytes()[:-1] for path in cut})
    done = cluster.run("checkpoints", "verify", job)
    assert done.returncode == 1 and "has the wrong size" in done.stdout
    assert cluster.run("checkpoints", "export", job, "--out", out).returncode == 2, "it is there"
    assert cluster.run("checkpoints", "export", job, "--out", out, "--overwrite").returncode == 1
    assert digest_of(out) == digest

    assert cluster.run("checkpoints", "list", "no-such-job").returncode == 1
    assert cluster.run("checkpoints", "export", job, "--out", "/no/such").returncode == 2
    assert cluster.run("checkpoints", "verify", job, "--step", "7").returncode == 1


@pytest.mark.deep
def test_all_is_lost_but_disks_one_of_them_rotten(
    cluster: Cluster, undisturbed: Callable[[str], str]
) -> None:
    digest = undisturbed("high.py")
    job = cluster.submit(
        "high.py", world__max=3, checkpoint__every_steps=5, job__args=["--pace-seconds", "0.06"]
    )

    def newest() -> int | None:
        made = cluster.kinds(job, "checkpoint_committed")
        return made[-1]["step"] if made and made[-1]["step"] >= 15 else None

    cluster.wait_for("a checkpoint", newest)
    shown = cluster.status(job)["step"]
    cluster.kill_nodes(cluster.nodes)
    marks = cluster.home.glob(f"node-*/reached/{job}")
    reached = max(json.loads(path.read_text())[-1] for path in marks)
    assert reached >= shown
    # Of the newest one node may have all that it is to have, another not yet.
    stores = judge.stores(cluster.home).items()
    step = judge.reach({node: store.stored(JobId(job)) for node, store in stores})
    copies = replicas(cluster, job, step)
    final = [path for path in copies if not path.parent.name.endswith(".partial")]
    names = [path.name for path in final]
    spoilt = next(path for path in final if names.count(path.name) > 1)
    flip_last_byte(spoilt)
    cluster.hurry(job)
    cluster.revive()
    end = cluster.wait_end(job)
    assert (end["digest"], end["lost_steps"]) == (digest, reached - step)

    def repaired() -> bool:
        told = cluster.kinds(job, "checkpoint_repaired")
        return any(e["step"] == step and "not what was written" in e["cause"] for e in told)

    cluster.wait_for("the rotten copy is repaired", repaired)
    restored = [(e["rung"], e["resume_step"]) for e in cluster.kinds(job, "recovery_finished")]
    assert ("restore", step) in restored


@pytest.mark.deep
@pytest.mark.parametrize("nodes", [2, 3])
def test_all_copies_of_the_newest_rotten_an_older_one_is_restored(
    make_cluster: Make, tmp_path: Path, nodes: int
) -> None:
    """Of two nodes each has all shards; of three none has, and each reads others' rotten ones."""
    with make_cluster(tmp_path, nodes) as cluster:
        settings: dict[str, Any] = {"train__steps": 32, "checkpoint__every_steps": 5}
        settings["recovery__spare"] = "none"
        digest = cluster.wait_end(cluster.submit("high.py", **settings))["digest"]
        job = cluster.submit("high.py", job__args=["--pace-seconds", "0.06"], **settings)
        cluster.wait_step(job, 17)
        cluster.kill_nodes(cluster.nodes)
        steps = {int(path.parent.name[:8]) for path in finals(cluster, job)}
        assert len(steps) > 1
        for spoilt in replicas(cluster, job, max(steps)):
            flip_last_byte(spoilt)
        cluster.hurry(job)
        cluster.revive()
        assert cluster.wait_end(job)["digest"] == digest
        restored = [e for e in cluster.kinds(job, "recovery_finished") if e["rung"] == "restore"]
        assert {e["resume_step"] for e in restored} & (steps - {max(steps)})


@pytest.mark.deep
def test_one_node_of_three_restores_what_it_holds(make_cluster: Make, tmp_path: Path) -> None:
    with make_cluster(tmp_path, 3) as cluster:
        settings: dict[str, Any] = {"train__steps": 30, "checkpoint__every_steps": 5}
        settings["recovery__spare"] = "none"
        digest = cluster.wait_end(cluster.submit("high.py", **settings))["digest"]
        job = cluster.submit(
            "high.py", checkpoint__replicas=3, job__args=["--pace-seconds", "0.06"], **settings
        )

        def held() -> bool:
            own = [path.parent for path in finals(cluster, job) if "node-2" in path.parts]
            whole = [folder for folder in own if len(list(folder.glob("shard-*"))) == 3]
            return any(int(folder.name[:8]) >= 5 for folder in whole)

        cluster.wait_for("a whole checkpoint on node-2", held)
        cluster.kill_nodes(cluster.nodes)
        cluster.hurry(job)
        cluster.restart_daemon("node-2")
        end = cluster.wait_end(job)
        assert end["digest"] == digest and cluster.living() == ["node-2"]
        restored = [e for e in cluster.kinds(job, "recovery_finished") if e["rung"] == "restore"]
        assert restored and restored[-1]["resume_step"] >= 5
        assert [row["step"] for row in rows(cluster, job)][-1] == 30


@pytest.mark.deep
def test_verified_exported_and_pruned_while_it_trains(make_cluster: Make, tmp_path: Path) -> None:
    with make_cluster(tmp_path, 3) as cluster:
        job = cluster.submit(
            "high.py", train__steps=2000, checkpoint__every_steps=5, checkpoint__keep=400,
            recovery__spare="none", job__args=["--pace-seconds", "0.03"],
        )  # fmt: skip
        cluster.wait_for("checkpoints", lambda: len(asked(cluster, job)) >= 4)

        done = cluster.run("checkpoints", "verify", job, "--json")
        *replicas, total = [json.loads(line) for line in done.stdout.splitlines()]
        assert [frame for frame in replicas if not frame["ok"]] == [] and done.returncode == 0
        assert len(replicas) >= 4 * 3 * 2
        # A slow disk may have one overtaken by the next, which alone is called consistent then.
        never = [row["step"] for row in total.pop("never_completed")]
        assert max(never, default=-1) < rows(cluster, job)[-1]["step"]
        assert total == {
            "verified": len(replicas),
            "damaged": 0,
            "silent": {},
            "unreadable": [],
        }

        out = tmp_path / "out.safetensors"
        exported = json.loads(cluster.command("checkpoints", "export", job, "--out", out, "--json"))
        assert exported["files"] == [str(out)] and digest_of(out) == exported["digest"]

        gone = json.loads(cluster.command("checkpoints", "prune", job, "--keep", "1", "--json"))
        removed, kept = ([row["step"] for row in gone[name]] for name in ("removed", "kept"))
        # A node that prunes later may have one more by then.
        assert 0 in removed and gone["failures"] == [] and max(removed) < max(kept)
        assert len(kept) <= 2
        missing = cluster.run("checkpoints", "verify", job, "--step", "0", "--json")
        assert missing.returncode == 1 and len(missing.stderr.splitlines()) == 1

        after = cluster.wait_step(job, kept[0] + 11)
        assert after["state"] == "running"
        assert rows(cluster, job)[-1]["step"] > kept[0]
        cluster.command("cancel", job)


def test_starts_from_an_export_in_slices_at_its_own_interval(
    cluster: Cluster, tmp_path: Path
) -> None:
    first = cluster.submit("high.py", recovery__spare="none", world__max=2, train__steps=10)
    digest = cluster.wait_end(first)["digest"]
    out = tmp_path / "start.safetensors"
    cluster.command("checkpoints", "export", first, "--out", out)
    job = cluster.submit(
        "high.py", world__max=2, train__steps=40, train__init_from=str(out), recovery__spare="none",
        checkpoint__every_steps="auto", checkpoint__snapshot="slices", checkpoint__keep=100,
    )  # fmt: skip
    cluster.wait_end(job)
    found = rows(cluster, job)
    assert found[0]["step"] == 0 and found[0]["digest"] == digest
    events = cluster.events(job)
    committed = [e for e in events if e["kind"] == "checkpoint_committed"]
    assert {e["snapshot"] for e in committed} == {"slices"}
    chosen = [e for e in events if e["kind"] == "checkpoint_interval"]
    assert chosen and chosen[0]["every_steps"] > 10
    assert "costs least" in chosen[0]["reason"]

    other = cluster.submit(
        "low.py", recovery__spare="none", world__max=2, train__steps=10, train__init_from=str(out)
    )
    failed = cluster.wait_end(other, "failed")
    assert "start.safetensors: 'norm.bias' is absent here" in failed["reason"]
