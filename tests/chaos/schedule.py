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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from elasticd.errors import NoDaemonError, OperationError
from tests.integration.cluster import Cluster, Seen
from tests.integration.netns import NetCluster

PROCESSES = ("trainer", "reducer", "node")
STOPPED = {"stopped trainer": "trainer", "stopped reducer": "reducer"}
"""Ends of nothing: SIGSTOP, for ever."""
HARSH = (*PROCESSES, "daemon", "restarted daemon", *STOPPED)
PASSING = (
    "paused trainer", "paused daemon", "paused node", "slow trainer",
    "closed link", "dropped link", "one-way link", "partition", "pulled cable",
    "full disk", "short memory",
)  # fmt: skip
"""What ends by itself. A link, a partition and a cable concern the witness, too."""
PARTING = ("closed link", "dropped link", "one-way link", "partition", "pulled cable",
           "paused daemon", "paused node")  # fmt: skip
"""After these both sides may go on for a while, and what one of them commits is not used."""
TOTAL = ("every trainer", "every node")


@dataclass(frozen=True)
class Blow:
    """One fault, ``after_seconds`` behind the one before.

    ``rank`` counts from the witness on.

    ``process`` is of :data:`HARSH` or :data:`PASSING`, or of :data:`TOTAL`, which spares nobody.
    What passes does so after ``seconds``.
    """

    process: str
    rank: int
    after_seconds: float
    seconds: float = 0.0

    def __str__(self) -> str:
        where = "" if self.process in TOTAL else f" {self.rank:+d}"
        lasting = f" for {self.seconds:.1f} s" if self.process in PASSING else ""
        return f"{self.process}{where}{lasting} after {self.after_seconds:.2f} s"


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

    @property
    def parts(self) -> bool:
        """Whether two sides may go on without each other."""
        return any(blow.process in PARTING for blow in self.blows)


def draw_fault(dice: random.Random, step: int, harsh: bool = False) -> Fault:
    """One fault: a single kill, several at once, or another kill while the first is recovered."""
    if harsh and dice.random() < 0.1:
        blow = Blow(dice.choice(TOTAL), 0, 0.0)
        return Fault(step, 0, (blow,), True)
    blows = [_draw_blow(dice, harsh, 0.0)]
    while len(blows) < 3 and dice.random() < 0.4:
        blows.append(_draw_blow(dice, harsh, dice.choice((0.0, dice.uniform(0.0, 0.8)))))
    return Fault(step, dice.randrange(4), tuple(blows), dice.random() < 0.7)


def _draw_blow(dice: random.Random, harsh: bool, after_seconds: float) -> Blow:
    processes = (HARSH, PASSING)[dice.random() < 0.5] if harsh else PROCESSES
    process, rank = dice.choice(processes), dice.randint(1, 3)
    return Blow(process, rank, after_seconds, dice.uniform(0.5, 4.0) if process in PASSING else 0.0)


def draw(dice: random.Random, steps: int, count: int, harsh: bool = False) -> list[Fault]:
    """``count`` faults, in the first four fifths of a job of ``steps``."""
    at = sorted(dice.sample(range(1, steps * 4 // 5), count))
    return [draw_fault(dice, step, harsh) for step in at]


class Revival:
    """Brings dead nodes back while the job goes on, and ends what passes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._healing: list[threading.Thread] = []
        self._thread: threading.Thread | None = None
        self._error: AssertionError | None = None

    def later(self, seconds: float, heal: Callable[[], None]) -> None:
        """End something that passes."""
        thread = threading.Timer(seconds, heal)
        thread.start()
        self._healing.append(thread)

    def healed(self) -> None:
        """Wait until all that passes has passed."""
        while self._healing:
            self._healing.pop().join()

    def start(self) -> None:
        """Unless one is under way."""
        if self._thread is None or not self._thread.is_alive():
            self.finish()
            self._thread = threading.Thread(target=self._run)
            self._thread.start()

    def _run(self) -> None:
        try:
            self.healed()
            self._cluster.revive()
        except AssertionError as error:
            self._error = error

    def join(self) -> None:
        """Wait until all is done and has passed; raises what it failed with."""
        self.healed()
        self.finish()

    def finish(self) -> None:
        """Wait until the revival under way is done; raises what it failed with."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error


def inflict(cluster: Cluster, job: str, fault: Fault, revival: Revival) -> list[str]:
    """Kill what ``fault`` says; returns what was killed, nothing once the job has ended."""
    ranks = [{**rank, "job": job} for rank in cluster.wait_whole(job, fault.step)["ranks"]]
    done: list[str] = []
    for blow in fault.blows if ranks else ():
        if blow.process not in ("trainer", "reducer", *STOPPED, *PASSING):
            revival.finish()  # which would fail if a daemon dies under its hands
        time.sleep(blow.after_seconds)
        done += _blow(cluster, blow, ranks, fault.witness, revival)
    if done and (fault.revive or len(cluster.living()) < 2):
        revival.start()
    return done


def _blow(
    cluster: Cluster,
    blow: Blow,
    ranks: Sequence[Mapping[str, Any]],
    witness: int,
    revival: Revival,
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
    rank = ranks[(witness + distance) % len(ranks)]
    if blow.process in PASSING:
        spared = ranks[witness % len(ranks)]["node"]
        return _pass(Passing(cluster, blow, rank, spared, revival))
    return _strike(cluster, rank, blow.process)


@dataclass(frozen=True)
class Passing:
    """Something that passes: who is hit, and who is on the other side where there are sides."""

    cluster: Cluster
    blow: Blow
    rank: Mapping[str, Any]
    witness: str
    revival: Revival

    @property
    def node(self) -> str:
        return str(self.rank["node"])

    def chaos(self, **request: Any) -> bool:
        """``elasticctl chaos``; False if it can't be done now."""
        try:
            self.cluster.client.request({"do": "chaos", "seconds": self.blow.seconds, **request})
        except (OperationError, NoDaemonError) as error:
            print(f"          {self.blow.process} of {self.node} was refused: {error}", flush=True)
            return False
        return True

    def pause(self, processes: Sequence[Seen]) -> bool:
        stopped = [one for one in processes if one.alive]
        for one in stopped:
            os.kill(one.pid, signal.SIGSTOP)

        def wake() -> None:
            for one in stopped:
                if one.alive:
                    os.kill(one.pid, signal.SIGCONT)

        self.revival.later(self.blow.seconds, wake)
        return bool(stopped)


def _pass(this: Passing) -> list[str]:
    """Begin what passes; says what it was, nothing if it could not be."""
    kind, node, cluster = this.blow.process, this.node, this.cluster
    sides = [[this.witness], [node]]
    match kind:
        case "paused trainer":
            ours = [p for p in cluster.processes(node)[1:] if p.role == "trainer"]
            done = this.pause(ours)
        case "paused daemon":
            done = this.pause(cluster.processes(node)[:1])
        case "paused node":
            done = this.pause(cluster.processes(node))
        case "slow trainer":
            done = this.chaos(what="slow", job=this.rank["job"], rank=this.rank["rank"])
        case "short memory":
            done = this.chaos(what="oom", job=this.rank["job"], rank=this.rank["rank"])
        case "closed link" | "dropped link" | "one-way link":
            how = {"closed link": "close", "dropped link": "drop"}.get(kind, "one-way")
            done = this.chaos(what="link", groups=sides, how=how)
        case "partition":
            others = [n for n in cluster.living() if n not in (node, this.witness)]
            sides = [[this.witness, *others[:1]], [node, *others[1:]]]
            done = this.chaos(what="partition", groups=sides, how="drop")
        case _:
            done = _pass_of_its_own(this)
    return [f"{kind} of {node}"] if done else []


def _pass_of_its_own(this: Passing) -> bool:
    """For nodes with a network and a disk of their own."""
    if not isinstance(this.cluster, NetCluster):
        return False
    if this.blow.process == "pulled cable":
        this.cluster.pull(this.node)
        this.revival.later(this.blow.seconds, partial(this.cluster.plug, this.node))
    else:
        this.cluster.fill_disk(this.node)
        this.revival.later(this.blow.seconds, partial(this.cluster.free_disk, this.node))
    return True


def _strike(cluster: Cluster, rank: Mapping[str, Any], process: str) -> list[str]:
    """Hit a rank's process, or what has taken its place; says what it was."""
    node = rank["node"]
    match process:
        case "node":
            cluster.kill_node(node)
        case "daemon":
            cluster.kill_daemon(node)
        case "restarted daemon":
            cluster.restart_daemon(node)
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
