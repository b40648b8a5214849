"""Random faults for real clusters. What is killed when is drawn from a seed.

Unless a fault is meant to end everything, it spares one rank, the witness, so that a trainer that
holds the newest state lives on and no committed step may be lost.
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
STOPPED = {"stopped trainer": "trainer", "stopped reducer": "reducer"}
"""Ends of nothing: SIGSTOP, for ever."""
HARSH = (*PROCESSES, "daemon", *STOPPED)
TOTAL = ("every trainer", "every node")


@dataclass(frozen=True)
class Blow:
    """One SIGKILL or SIGSTOP, ``after_seconds`` behind the one before.

    ``rank`` counts from the witness on.

    ``process`` is of :data:`HARSH`, or of :data:`TOTAL`, which spares nobody.
    """

    process: str
    rank: int
    after_seconds: float

    def __str__(self) -> str:
        where = "" if self.process in TOTAL else f" {self.rank:+d}"
        return f"{self.process}{where} after {self.after_seconds:.2f} s"


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

    @property
    def total(self) -> bool:
        """Whether it ends every trainer, so that committed steps may be lost."""
        return any(blow.process in TOTAL for blow in self.blows)


def draw_fault(dice: random.Random, step: int, harsh: bool = False) -> Fault:
    """One fault: a single kill, several at once, or another kill while the first is recovered."""
    if harsh and dice.random() < 0.1:
        blow = Blow(dice.choice(TOTAL), 0, 0.0)
        return Fault(step, 0, (blow,), True)
    processes = HARSH if harsh else PROCESSES
    blows = [Blow(dice.choice(processes), dice.randint(1, 3), 0.0)]
    while len(blows) < 3 and dice.random() < 0.4:
        later = dice.choice((0.0, dice.uniform(0.0, 0.8)))
        blows.append(Blow(dice.choice(processes), dice.randint(1, 3), later))
    return Fault(step, dice.randrange(4), tuple(blows), dice.random() < 0.7)


def draw(dice: random.Random, steps: int, count: int, harsh: bool = False) -> list[Fault]:
    """``count`` faults, in the first four fifths of a job of ``steps``."""
    at = sorted(dice.sample(range(1, steps * 4 // 5), count))
    return [draw_fault(dice, step, harsh) for step in at]


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
        error, self._error = self._error, None
        if error is not None:
            raise error


def inflict(cluster: Cluster, job: str, fault: Fault, revival: Revival) -> list[str]:
    """Kill what ``fault`` says; returns what was killed, nothing once the job has ended."""
    ranks = cluster.wait_whole(job, fault.step)["ranks"]
    done: list[str] = []
    for blow in fault.blows if ranks else ():
        if blow.process not in ("trainer", "reducer", *STOPPED):
            revival.join()  # which would fail if a daemon dies under its hands
        time.sleep(blow.after_seconds)
        done += _blow(cluster, blow, ranks, fault.witness)
    if done and (fault.revive or len(cluster.living()) < 2):
        revival.start()
    return done


def _blow(
    cluster: Cluster, blow: Blow, ranks: Sequence[Mapping[str, Any]], witness: int
) -> list[str]:
    if blow.process == "every trainer":
        return [node for rank in ranks for node in _strike(cluster, rank, "trainer")]
    if blow.process == "every node":
        cluster.kill_nodes(cluster.nodes)
        return ["every node"]
    others = len(ranks) - 1
    if not others and STOPPED.get(blow.process, blow.process) != "reducer":
        return []
    # The witness is a rank of the world that the fault began in, and is never hit.
    distance = 1 + (blow.rank - 1) % others if others else 0
    return _strike(cluster, ranks[(witness + distance) % len(ranks)], blow.process)


def _strike(cluster: Cluster, rank: Mapping[str, Any], process: str) -> list[str]:
    """Hit a rank's process, or what has taken its place; says what it was."""
    node = rank["node"]
    match process:
        case "node":
            cluster.kill_node(node)
        case "daemon":
            cluster.kill_daemon(node)
        case _:
            role = STOPPED.get(process, process)
            pid = rank["pid"] if role == "trainer" else rank["reducer_pid"]
            ours = [p for p in cluster.processes(node)[1:] if p.role == role and p.alive]
            if not ours:
                return []
            number = signal.SIGSTOP if process in STOPPED else signal.SIGKILL
            os.kill(min(ours, key=lambda one: one.pid != pid).pid, number)
    return [f"{process} of {node}"]


def undo(cluster: Cluster, revival: Revival) -> None:
    """All nodes live again."""
    revival.join()
    if len(cluster.living()) < cluster.size:
        cluster.revive()


def shown(faults: Sequence[Fault]) -> str:
    return "; ".join(str(fault) for fault in faults)
