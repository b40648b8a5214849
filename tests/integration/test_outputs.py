"""Main's output folder: fetched while a job trains and after its end, and when main is lost."""

from __future__ import annotations

import contextlib
import json
import tempfile
from functools import partial
from pathlib import Path

import pytest

from elasticd.train.outputs.tensorboard import NAME
from tests.integration.cluster import Cluster
from tests.tfevents import scalars

pytestmark = pytest.mark.process

SLOW = ["--pace", "0.02"]


def steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def has(path: Path, step: int) -> bool:
    """Whether a step's line is in a copy, which may be replaced by the next one meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return step in steps(path)
    return False


def main_of(cluster: Cluster, job: str) -> str:
    ranks = cluster.wait_for("a world", lambda: cluster.status(job)["ranks"])
    node: str = ranks[0]["node"]
    return node


def await_copies(cluster: Cluster, job: str, main: str, step: int, nodes: int = 3) -> None:
    """Until so many nodes have main's lines up to a step."""

    def look() -> bool:
        pattern = f"node-*/outputs/{job}/[0-9]*[0-9]/files/history.jsonl"
        found = [path for path in cluster.home.glob(pattern) if main not in path.parts]
        # The copy before may still be there: a node counts once.
        have = {path.relative_to(cluster.home).parts[0] for path in found if has(path, step)}
        return len(have) >= nodes

    cluster.wait_for(f"copies of step {step}", look)


def test_fetched_from_any_node(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(
        "writes.py", recovery__spare="none", train__steps=12, checkpoint__every_steps=5
    )
    digest = cluster.wait_end(job)["digest"]
    for node in cluster.nodes:
        out = tmp_path / node
        said = json.loads(cluster.command(
            "outputs", job, "--out", out, "--json", "--home", cluster.home / node
        ))  # fmt: skip
        assert said["files"] == ["history.jsonl", "logs/metrics.csv", "result.txt"]
        assert not said["copy"] and said["node"] == said["main"]
        assert steps(out / "history.jsonl") == list(range(1, 13))
        assert (out / "logs" / "metrics.csv").read_text().split() == [str(n) for n in range(1, 13)]
        assert (out / "result.txt").read_text() == digest
    again = cluster.run("outputs", job, "--out", tmp_path / cluster.nodes[0])
    assert again.returncode == 2 and "is not empty" in again.stderr
    none = cluster.run("outputs", "no-such", "--out", tmp_path / "none")
    assert none.returncode == 1 and "no job no-such" in none.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(cluster.nodes)


@pytest.mark.deep
def test_kept_when_main_is_lost(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(
        "writes.py",
        world__min=4,
        train__steps=4000,
        checkpoint__every_steps=5,
        job__args=SLOW,
    )
    cluster.wait_step(job, 6)
    main = main_of(cluster, job)
    await_copies(cluster, job, main, 5)
    cluster.kill_node(main)
    cluster.wait_for("parked", lambda: cluster.status(job)["state"] == "parked")
    said = json.loads(cluster.command("outputs", job, "--out", tmp_path / "out", "--json"))
    assert said["copy"] and said["main"] == main and said["node"] != main
    kept = steps(tmp_path / "out" / "history.jsonl")
    assert kept == list(range(1, len(kept) + 1)) and len(kept) >= 5
    assert (tmp_path / "out" / "logs" / "metrics.csv").read_text().split()[:5] == list("12345")


def test_the_next_main_goes_on_with_the_files(cluster: Cluster, tmp_path: Path) -> None:
    """With one that the script appends to, and with TensorBoard's."""
    job = cluster.submit(
        "writes.py",
        recovery__spare="none",
        train__steps=4000,
        checkpoint__every_steps=5,
        job__args=SLOW,
        track__tensorboard=True,
    )
    cluster.wait_step(job, 6)
    main = main_of(cluster, job)
    await_copies(cluster, job, main, 5)
    cluster.kill_node(main)
    cluster.wait_for("another main", lambda: main not in str(cluster.status(job)["ranks"]))
    lost = cluster.status(job)["step"]
    cluster.wait_whole(job, lost + 3)

    def written() -> tuple[list[int], dict[int, dict[str, float]]] | None:
        """With what the next main has written; it does so a moment behind the steps."""
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            if cluster.run("outputs", job, "--out", Path(folder) / "out").returncode:
                return None  # main may not answer at once
            lines = steps(Path(folder) / "out" / "history.jsonl")
            told = scalars(Path(folder) / "out" / NAME)
        three = [step for step, each in told.items() if each["elasticd/world_size"] == 3]
        return (lines, told) if three and lines[-1] > lost and len(told) > lost else None

    lines, told = cluster.wait_for(f"steps of three behind {lost} in both files", written)
    assert lines[:5] == [1, 2, 3, 4, 5] and lines == sorted(set(lines)), cluster.report(main, job)
    assert list(told) == list(range(1, len(told) + 1))
    assert all(values["number"] == step and values["loss"] > 0 for step, values in told.items())
    assert {values["elasticd/world_size"] for values in told.values()} >= {3.0, 4.0}


@pytest.mark.deep
def test_the_best_model_is_the_one_that_the_state_knows(cluster: Cluster, tmp_path: Path) -> None:
    """Whoever was away has an older one, and is main in the end."""
    job = cluster.submit(
        "best.py",
        recovery__spare="none",
        train__steps=1000,
        checkpoint__every_steps=2000,
        job__args=SLOW,
    )
    ranks = cluster.wait_step(job, 6)["ranks"]
    nodes = [rank["node"] for rank in ranks]
    for lost in (nodes[:2], nodes[2:]):
        killed = cluster.wait_for("both", partial(cluster.kill_trainers, job, lost))

        def back(killed: list[int] = killed) -> int | None:
            """The step, once every rank has a trainer that lives."""
            now = cluster.status(job)
            pids = {rank["pid"] for rank in now["ranks"]}
            whole = now["state"] == "running" and len(pids) == len(nodes)
            return now["step"] if whole and pids.isdisjoint(killed) else None

        cluster.wait_step(job, 1 + cluster.wait_for("all to be there again", back))
    assert main_of(cluster, job) in nodes[:2]
    cluster.hurry(job)
    cluster.wait_end(job)
    cluster.command("outputs", job, "--out", tmp_path / "out")
    known = (tmp_path / "out" / "known.txt").read_text()
    assert (tmp_path / "out" / "best.txt").read_text() == known
    for node in {rank["node"] for rank in ranks}:
        assert (cluster.home / node / "output" / job / "best.txt").read_text() == known, node


def left(cluster: Cluster, job: str, node: str) -> list[str]:
    """What a node still has of a job: which folders, and its events."""
    kinds = ("work", "clones", "output", "outputs", "logs", "checkpoints")
    home = cluster.home / node
    found = [kind for kind in kinds if (home / kind / job).exists()]
    return found + ["events"] * (home / "events" / f"{job}.events").exists()


def test_a_forgotten_job_leaves_nothing_also_where_a_node_was_away(cluster: Cluster) -> None:
    pace = ["--pace-seconds", "0.05"]
    job = cluster.submit("writes.py", train__steps=60, checkpoint__every_steps=10, job__args=pace)
    running = cluster.run("forget", job)
    assert running.returncode == 1 and f"elasticctl cancel {job}" in running.stderr
    cluster.wait_for("all", lambda: len(cluster.status(job)["ranks"]) == len(cluster.nodes))
    cluster.hurry(job)
    digest = cluster.wait_end(job)["digest"]
    assert digest
    kept = {node: left(cluster, job, node) for node in cluster.nodes}
    assert all("work" in kinds and "clones" in kinds for kinds in kept.values()), kept
    away = cluster.nodes[-1]
    cluster.kill_node(away)
    before = left(cluster, job, away)
    assert cluster.command("forget", job) == f"{job} forgotten\n"
    here = [node for node in cluster.nodes if node != away]
    cluster.wait_for("its files are gone", lambda: not any(left(cluster, job, n) for n in here))
    assert before and left(cluster, job, away) == before
    assert job not in cluster.command("jobs")
    gone = cluster.run("outputs", job, "--out", cluster.home / "out")
    assert gone.returncode == 1 and "it was forgotten" in gone.stderr
    cluster.restart_daemon(away)
    cluster.wait_for("also where it was away", lambda: not left(cluster, job, away))
