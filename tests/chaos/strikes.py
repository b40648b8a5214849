"""Faults made on real clusters, and whether they struck: only what did is counted."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from elasticd.core.words.requests.chaos import CutHow, CutKind, CutLinks, StrikeKind, StrikeRank
from elasticd.core.words.requests.jobs import RetryJob
from elasticd.errors import ElasticdError, NoDaemonError, OperationError, ProtocolError
from elasticd.shell.children.watch import LOOK_SECONDS
from elasticd.types import JobId, NodeId
from tests.chaos.schedule import PASSING, STOPPED, Blow, Fault
from tests.integration.cluster import Cluster, Seen
from tests.integration.memorygroup import MemoryGroup
from tests.integration.netns import NetCluster

Events = Sequence[Mapping[str, Any]]

_GROUP_SECONDS = 3.0
"""How long a group outlives the process that was killed in it."""
_CUT = 'event="link cut on purpose"'


def _no_doubt(events: Events) -> bool:
    return True


@dataclass(frozen=True)
class Struck:
    """A fault that was made, and how the job's events, or what a daemon logged, show it."""

    kind: str
    node: str
    shown: Callable[[Events], bool] = _no_doubt
    at: float = 0.0
    """Unix seconds."""

    def __str__(self) -> str:
        return f"{self.kind} of {self.node}" if self.node else self.kind

    def hit(self, events: Events) -> bool:
        """Whether it met the job while that ran."""
        ends = [event["time"] for event in events if event["kind"] == "job_finished"]
        return self.at < min(ends, default=float("inf")) and self.shown(events)


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
            self._cluster.will_start()  # what passes is waited for first
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


def inflict(cluster: Cluster, job: str, fault: Fault, revival: Revival) -> list[Struck]:
    """Do what ``fault`` says; returns what was done, nothing once the job has ended."""
    ranks = [{**rank, "job": job} for rank in cluster.wait_whole(job, fault.step)["ranks"]]
    done: list[Struck] = []
    for blow in fault.blows if ranks else ():
        if blow.process not in ("trainer", "reducer", "memory kill", *STOPPED, *PASSING):
            revival.finish()  # which would fail if a daemon dies under its hands
        time.sleep(blow.after_seconds)
        one = _blow(cluster, blow, ranks, fault.witness, revival)
        done += [one] if one is not None else []
    if done and (fault.revive or len(cluster.living()) < 2):
        revival.start()
    return done


def _blow(
    cluster: Cluster,
    blow: Blow,
    ranks: Sequence[Mapping[str, Any]],
    witness: int,
    revival: Revival,
) -> Struck | None:
    now = time.time()
    if blow.process == "every trainer":
        killed = [_signal(cluster, rank, "trainer", signal.SIGKILL) for rank in ranks]
        return Struck("every trainer", "", at=now) if all(killed) else None
    if blow.process == "every node":
        living = cluster.living()
        cluster.kill_nodes(cluster.nodes)
        return Struck("every node", "", at=now) if living else None
    others = len(ranks) - 1
    if not others and STOPPED.get(blow.process, blow.process) != "reducer":
        return None
    # The witness is a rank of the world that the fault began in, and is never hit.
    distance = 1 + (blow.rank - 1) % others if others else 0
    rank = ranks[(witness + distance) % len(ranks)]
    node = str(rank["node"])
    if node not in cluster.living():
        return None
    shown: Callable[[Events], bool] = _no_doubt
    if blow.process in PASSING:
        passing = Passing(cluster, blow, rank, ranks[witness % len(ranks)]["node"], revival)
        shown = passing.shown(now)
        done = _pass(passing)
    else:
        done = _strike(cluster, rank, blow.process, revival)
    return Struck(blow.process, node, shown, now) if done else None


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

    def shown(self, now: float) -> Callable[[Events], bool]:
        """What a daemon was only asked for is believed when it shows."""
        match self.blow.process:
            case "short memory":
                return partial(_told, now, kind="fault_detected", fault="oom", node=self.node)
            case "unmounted data":
                return partial(_told, now, kind="node_unfit", node=self.node)
            case "closed link" | "dropped link" | "one-way link" | "partition":
                log = self.cluster.home / self.node / "daemon.log"
                return partial(_logged, log, log.stat().st_size)
        return _no_doubt

    def chaos(self, request: StrikeRank | CutLinks) -> bool:
        """``elasticctl chaos``; False if it can't be done now."""
        try:
            self.cluster.client.request(request)
        except (OperationError, NoDaemonError) as error:
            print(f"          {self.blow.process} of {self.node} was refused: {error}", flush=True)
            return False
        return True

    def hurt(self, what: StrikeKind) -> bool:
        rank, seconds = self.rank, self.blow.seconds
        return self.chaos(StrikeRank(what, rank["job"], rank["rank"], seconds=seconds))

    def cut(self, what: CutKind, sides: Sequence[Sequence[str]], how: CutHow) -> bool:
        groups = tuple(tuple(NodeId(node) for node in side) for side in sides)
        return self.chaos(CutLinks(what, groups, self.blow.seconds, how))

    def unmount(self) -> bool:
        """No sample can be read there any more. Afterwards an operator has it tried again."""
        sign = self.cluster.home / self.node / "unmounted"
        if sign.exists():
            return False

        def mount() -> None:
            sign.unlink()
            with contextlib.suppress(ElasticdError):  # the job has ended, or no daemon lives
                self.cluster.client.request(RetryJob(JobId(self.rank["job"])))

        sign.touch()
        self.revival.later(self.blow.seconds, mount)
        return True

    def pause(self, processes: Sequence[Seen]) -> bool:
        stopped = [one for one in processes if _runs(one)]
        for one in stopped:
            os.kill(one.pid, signal.SIGSTOP)

        def wake() -> None:
            for one in stopped:
                if one.alive:
                    os.kill(one.pid, signal.SIGCONT)

        self.revival.later(self.blow.seconds, wake)
        return bool(stopped)


def _told(since: float, events: Events, **wanted: str) -> bool:
    """Whether there is an event like that since then."""
    return any(
        all(e.get(key) == value for key, value in wanted.items())
        for e in events
        if e["time"] >= since
    )


def _logged(log: Path, offset: int, events: Events) -> bool:
    """Whether a daemon has cut connections since then."""
    new = log.read_bytes()[offset:].decode(errors="replace").splitlines()
    return any(_CUT in line and "connections=0" not in line for line in new)


def _pass(this: Passing) -> bool:
    """Begin what passes; False if it could not be."""
    kind, node, cluster = this.blow.process, this.node, this.cluster
    sides = [[this.witness], [node]]
    match kind:
        case "paused trainer":
            return this.pause(_working(cluster, this.rank, "trainer"))
        case "paused daemon":
            return this.pause(cluster.processes(node)[:1])
        case "paused node":
            return this.pause(cluster.processes(node))
        case "slow trainer":
            return this.hurt("slow")
        case "short memory":
            return this.hurt("oom")
        case "unmounted data":
            return this.unmount()
        case "closed link" | "dropped link" | "one-way link":
            hows: dict[str, CutHow] = {"closed link": "close", "dropped link": "drop"}
            return this.cut("link", sides, hows.get(kind, "one-way"))
        case "partition":
            others = [n for n in cluster.living() if n not in (node, this.witness)]
            sides = [[this.witness, *others[:1]], [node, *others[1:]]]
            return this.cut("partition", sides, "drop")
        case _:
            return _pass_of_its_own(this)


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


def _strike(cluster: Cluster, rank: Mapping[str, Any], process: str, revival: Revival) -> bool:
    """Hit a rank's process, or what has taken its place; whether that lived until then."""
    node = rank["node"]
    match process:
        case "node":
            cluster.kill_node(node)
        case "daemon":
            cluster.kill_daemon(node)
        case "restarted daemon":
            cluster.restart_daemon(node)
        case "memory kill":
            return any(_starve(one, revival) for one in _working(cluster, rank, "trainer"))
        case _:
            number = signal.SIGSTOP if process in STOPPED else signal.SIGKILL
            return _signal(cluster, rank, STOPPED.get(process, process), number)
    return True


def _working(cluster: Cluster, rank: Mapping[str, Any], role: str) -> list[Seen]:
    """The rank's living process of that role, or its successor; no spare: that hurts nobody."""
    key = "pid" if role == "trainer" else "reducer_pid"
    ours = {p.pid: p for p in cluster.processes(rank["node"])[1:] if p.role == role and p.alive}
    if rank[key] not in ours:
        with contextlib.suppress(NoDaemonError, OperationError, ProtocolError):
            now = cluster.status(rank["job"])["ranks"]
            return [ours[r[key]] for r in now if r["node"] == rank["node"] and r[key] in ours]
        return []
    return [ours[rank[key]]]


def _runs(one: Seen) -> bool:
    """Whether it is alive and not stopped already."""
    with contextlib.suppress(psutil.Error):
        return one.alive and psutil.Process(one.pid).status() != psutil.STATUS_STOPPED
    return False


def _signal(cluster: Cluster, rank: Mapping[str, Any], role: str, number: signal.Signals) -> bool:
    for one in _working(cluster, rank, role):
        if number == signal.SIGSTOP and not _runs(one):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, number)
            return True
    return False


def _starve(one: Seen, revival: Revival) -> bool:
    """Let the kernel kill a process for want of memory; whether it did."""
    try:
        group = MemoryGroup()
    except OSError as error:
        print(f"          no memory kill: {error}", flush=True)
        return False
    try:
        group.add(one.pid)
        time.sleep(2 * LOOK_SECONDS)
        return group.exhaust(one.pid)
    except OSError:
        return False  # it has just ended
    finally:
        # Its daemon reads the group's count after the death, and has to find it there.
        revival.later(_GROUP_SECONDS, group.close)


def undo(cluster: Cluster, revival: Revival) -> None:
    """All nodes live again."""
    revival.join()
    if len(cluster.living()) < cluster.size:
        cluster.revive()
