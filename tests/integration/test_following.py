"""``logs -f`` and ``events -f`` while the daemon that tells them is killed, and while it is
stopped: the next one goes on, and nothing is told twice or left out."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import ELASTICCTL, WAIT_SECONDS, Cluster

pytestmark = pytest.mark.process

PACE = ["--pace-seconds", "0.03"]


def read(text: str) -> list[dict[str, Any]]:
    """The objects, one a line; the last line may have no end yet."""
    return [json.loads(line) for line in text.split("\n")[:-1]]


class Follower:
    """``elasticctl COMMAND JOB -f --json``, and what it has printed so far."""

    def __init__(self, cluster: Cluster, command: str, job: str, out: Path) -> None:
        self._out = out
        with out.open("wb") as file:
            self.process = subprocess.Popen(
                [ELASTICCTL, "--home", cluster.home, command, job, "-f", "--json"],
                stdin=subprocess.DEVNULL,
                stdout=file,
                env=cluster.environment,
            )

    def told(self) -> list[dict[str, Any]]:
        return read(self._out.read_text())

    def step(self) -> int:
        """The last of which a rank has printed something."""
        return max(map(last, by_node(self.told()).values()), default=0)


def by_node(pieces: list[dict[str, Any]]) -> dict[str, str]:
    found = defaultdict[str, str](str)
    for piece in pieces:
        found[piece["node"]] += piece.get("text", "")
    return dict(found)


def lines(text: str) -> list[str]:
    return [line for line in text.split("\n")[:-1] if line.startswith("step ")]


def last(text: str) -> int:
    """The last step of which it tells; 0: of none."""
    return max((int(line.split()[1]) for line in lines(text)), default=0)


def on_disk(cluster: Cluster, node: str, job: str) -> str:
    """What the node's trainers have printed."""
    files = (cluster.home / node / "logs" / job).glob("*-trainer.log")
    return "".join(path.read_text() for path in sorted(files))


def rests(cluster: Cluster, job: str) -> bool:
    """Whether the job is paused, and no trainer is left."""
    paused = cluster.status(job)["state"] == "paused"
    return paused and not any(one.alive for one in cluster.seen if one.role == "trainer")


@contextlib.contextmanager
def following(cluster: Cluster, command: str, job: str, out: Path) -> Iterator[Follower]:
    made = Follower(cluster, command, job, out)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
        made.process.wait()


def without(events: Follower, node: str) -> bool:
    """Whether a world without it has been told."""
    formed = [each for each in events.told() if each["kind"] == "world_formed"]
    return any(node not in each["members"] for each in formed)


@contextlib.contextmanager
def stopped(cluster: Cluster, node: str) -> Iterator[None]:
    """Its daemon is, by SIGSTOP."""
    daemon = cluster.processes(node)[0]
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


def test_another_daemon_goes_on_with_what_is_followed(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    with make_cluster(tmp_path, 3) as cluster:
        job = cluster.submit("high.py", recovery__spare="none", train__steps=4000, job__args=PACE)
        cluster.wait_whole(job, 2)
        with (
            following(cluster, "logs", job, tmp_path / "logs") as logs,
            following(cluster, "events", job, tmp_path / "events") as events,
        ):

            def goes_on(what: str) -> None:
                """Of a step that was not yet begun something is told."""
                seen = max(logs.step(), cluster.status(job)["step"]) + 3
                cluster.wait_for(f"{what}: step {seen} is told", lambda: logs.step() >= seen)

            goes_on("at first")
            cluster.kill_daemon("node-0")  # which comes first of those that answer
            goes_on("it is killed")
            cluster.restart_daemon("node-0")
            with stopped(cluster, "node-1"):  # which tells now
                goes_on("it is stopped")
                cluster.wait_for("the world without it is told", lambda: without(events, "node-1"))
            with stopped(cluster, "node-2"):  # which tells nothing
                goes_on("another is stopped")
            cluster.command("pause", job)
            cluster.wait_for("nobody prints any more", lambda: rests(cluster, job))
            printed = {node: last(on_disk(cluster, node, job)) for node in cluster.nodes}

            def caught_up() -> bool:
                told = by_node(logs.told())
                late = [n for n, step in printed.items() if last(told.get(n, "")) < step]
                return not late and told == by_node(read(cluster.command("logs", job, "--json")))

            # Who follows does not wait, once all is over, for a node that is away.
            cluster.wait_for("what was printed by stopped ones is told", caught_up)
            cluster.command("cancel", job)
            assert logs.process.wait(WAIT_SECONDS) == 0
            assert events.process.wait(WAIT_SECONDS) == 0
        everything = read(cluster.command("logs", job, "--json"))
        followed = by_node(logs.told())
        assert followed == by_node(everything), cluster.report("logs", job)
        assert {piece["rank"] for piece in logs.told() if piece.get("text")} >= {0, 1, 2}
        told = [json.dumps(event, sort_keys=True) for event in events.told()]
        assert sorted(told) == sorted({*told}) and told
        assert {each["kind"] for each in cluster.events(job)} <= {
            each["kind"] for each in events.told()
        }
