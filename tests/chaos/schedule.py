"""Random faults for real clusters. Everything is drawn from the seed; nothing is left to the host.

A fault never kills every trainer that holds the state, unless it is meant to: in each compound
fault one rank, the witness, is spared, so that no committed step may be lost.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.integration.cluster import Cluster

PROCESSES = ("trainer", "reducer", "node")


@dataclass(frozen=True)
class Blow:
    """One SIGKILL, ``after_seconds`` behind the one before; ``rank`` counts from the witness on."""

    process: str
    rank: int
    after_seconds: float

    def __str__(self) -> str:
        return f"{self.process} {self.rank:+d} after {self.after_seconds:.2f} s"


@dataclass(frozen=True)
class Fault:
    """What is killed once ``step`` is committed, and whether dead nodes come back then."""

    step: int
    witness: int
    blows: tuple[Blow, ...]
    revive: bool

    def __str__(self) -> str:
        blows = ", ".join(str(blow) for blow in self.blows)
        return f"at step {self.step}: {blows}{', revived' if self.revive else ''}"


def draw_fault(dice: random.Random, step: int) -> Fault:
    """One fault: a single kill, several at once, or another kill while the first is recovered."""
    blows = [Blow(dice.choice(PROCESSES), dice.randint(1, 3), 0.0)]
    if dice.random() < 0.4:
        later = dice.choice((0.0, dice.uniform(0.0, 0.8)))
        blows.append(Blow(dice.choice(PROCESSES), dice.randint(1, 3), later))
    return Fault(step, dice.randrange(4), tuple(blows), dice.random() < 0.7)


def draw(seed: int, steps: int, count: int) -> list[Fault]:
    """``count`` faults, in the first four fifths of a job of ``steps``."""
    dice = random.Random(seed)
    return [draw_fault(dice, step) for step in sorted(dice.sample(range(1, steps * 4 // 5), count))]


class Revival:
    """Brings dead nodes back while the job goes on."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._thread: threading.Thread | None = None
        self._error: AssertionError | None = None

    def start(self) -> None:
        """Unless one is under way."""
        if self._thread is None or not self._thread.is_alive():
            self.join()
            self._thread = threading.Thread(target=self._run)
            self._thread.start()

    def _run(self) -> None:
        try:
            self._cluster.revive()
        except AssertionError as error:
            self._error = error

    def join(self) -> None:
        """Wait until it is done; raises what it failed with."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            raise self._error


def inflict(cluster: Cluster, job: str, fault: Fault, revival: Revival) -> list[str]:
    """Kill what ``fault`` says; returns what was killed, nothing once the job has ended."""
    ranks = cluster.wait_whole(job, fault.step)["ranks"]
    done: list[str] = []
    for blow in fault.blows if ranks else ():
        others = len(ranks) - 1
        if not others and blow.process != "reducer":
            continue
        # The witness is a rank of the world that the fault began in, and is never hit.
        distance = 1 + (blow.rank - 1) % others if others else 0
        victim = ranks[(fault.witness + distance) % len(ranks)]
        if blow.process == "node":
            revival.join()  # which would fail if a node dies under its hands
        time.sleep(blow.after_seconds)
        if strike(cluster, victim, blow.process):
            done.append(f"{blow.process} of {victim['node']}")
    if fault.revive or len(cluster.living()) < 2:
        revival.start()
    return done


def strike(cluster: Cluster, rank: Mapping[str, Any], process: str) -> bool:
    """SIGKILL a rank's process, or what has taken its place; False if there is none now."""
    if process == "node":
        cluster.kill_node(rank["node"])
        return True
    pid = rank["pid"] if process == "trainer" else rank["reducer_pid"]
    ours = [p for p in cluster.processes(rank["node"])[1:] if p.role == process and p.alive]
    for one in sorted(ours, key=lambda one: one.pid != pid)[:1]:
        os.kill(one.pid, signal.SIGKILL)
        return True
    return False


def undo(cluster: Cluster, revival: Revival) -> None:
    """All nodes live again."""
    revival.join()
    if len(cluster.living()) < cluster.size:
        cluster.revive()


def shown(faults: Sequence[Fault]) -> str:
    return "; ".join(str(fault) for fault in faults)
