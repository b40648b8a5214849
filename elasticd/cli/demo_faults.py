"""Real faults against a local cluster, and how long it takes to get over each.

Kills by exact pid, from what ``status`` says, and times what follows by the wall clock of this
machine, on which all of it happens.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import psutil

from elasticd.errors import OperationError
from elasticd.supervision.birth import UNSEEN

Kind = Literal["trainer", "reducer", "node"]
Event = Mapping[str, Any]
Described = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """What a fault hits: one process of a rank, or a node's daemon with all that it started."""

    kind: Kind
    node: str
    rank: int
    pid: int

    def __str__(self) -> str:
        if self.kind == "node":
            return f"{self.node} (daemon {self.pid} and its children)"
        return f"the {self.kind} of rank {self.rank} on {self.node} (pid {self.pid})"


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that has been done to a job."""

    target: Target
    pids: tuple[int, ...]
    killed_at: float
    """Unix seconds, taken right before the first SIGKILL."""
    generation: int
    step: int
    """What ``status`` said last before it."""


@dataclass(frozen=True, slots=True)
class StrikeCost:
    """What one strike cost. Seconds are counted from the SIGKILL; None: no event tells."""

    fault: Kind
    node: str
    rank: int
    pids: tuple[int, ...]
    rung: str
    seconds_to_detect: float | None
    """To the earliest evidence that the leader counts."""
    seconds_to_agree: float | None
    """From there until the survivors had said what they hold and the next world was planned."""
    seconds_to_form: float | None
    """From there until every member was in the new world."""
    seconds_to_redo: float | None
    """From there to the next committed step."""
    seconds_to_next_step: float
    """To the next committed step in a new world, as seen by asking a daemon again and again."""
    seconds_by_events: float | None
    """The same by the time of ``recovery_finished``."""
    steps_lost: int
    resume_step: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def choose(
    kind: Kind,
    view: Described,
    job: Described,
    nodes: Iterable[Described],
    hit: Collection[str] = (),
) -> Target:
    """The target of the next fault: trainers and reducers of followers, the node that leads.

    So each of three nodes is hit once, and the last fault costs the cluster its leader.

    Args:
        view, job, nodes: of ``status``.
        hit: nodes that had a fault before; others are preferred.

    Raises:
        OperationError: the job has no such process now.
    """
    ranks = [rank for rank in job.get("ranks") or () if rank.get("pid")]
    leader = view.get("leader")
    followers = sorted(
        (rank for rank in ranks if rank["node"] != leader),
        key=lambda rank: (rank["node"] in hit, rank["rank"]),
    )
    if kind == "node":
        chosen = [rank for rank in ranks if rank["node"] == leader]
        pids = {node["id"]: node.get("pid") for node in nodes}
    else:
        chosen = followers
        key = "pid" if kind == "trainer" else "reducer_pid"
        pids = {rank["node"]: rank.get(key) for rank in ranks}
    for rank in chosen:
        if pid := pids.get(rank["node"]):
            return Target(kind, str(rank["node"]), int(rank["rank"]), int(pid))
    raise OperationError(f"the job has no {kind} that could be killed now")


def strike(target: Target, job: Described) -> Strike:
    """SIGKILL the target, now.

    Raises:
        OperationError: it has ended by itself meanwhile.
    """
    step, generation = int(job["step"]), int(job["generation"])
    try:
        processes = _processes(target)
    except UNSEEN as error:
        raise OperationError(f"{target} is gone before it was killed: {error}") from None
    killed_at = time.time()
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    pids = tuple(process.pid for process in processes)
    return Strike(target, pids, killed_at, generation, step)


def _processes(target: Target) -> list[psutil.Process]:
    found = psutil.Process(target.pid)
    if target.kind != "node":
        return [found]
    found.suspend()  # so that it starts nothing between our look and our kill
    return [found, *found.children(recursive=True)]


def new_world(struck: Strike, events: Iterable[Event]) -> Event | None:
    """The first world that was formed after the strike, if any was yet."""
    for event in _after(struck, events, "world_formed"):
        return event
    return None


def finished(struck: Strike, events: Iterable[Event]) -> Event | None:
    """The ``recovery_finished`` that belongs to the strike, if it has come."""
    for event in _after(struck, events, "recovery_finished"):
        return event
    return None


def measure(struck: Strike, events: Sequence[Event], seen_at: float) -> StrikeCost:
    """Put together what a strike cost.

    Args:
        events: the job's and the cluster's, in the order of time.
        seen_at: Unix seconds at which a status first showed a step committed in the new world.
    """
    world, end = new_world(struck, events), finished(struck, events)
    resume_step = struck.step if world is None else int(world["resume_step"])
    evidence = _first_evidence(struck, events, end)
    formed_at = None if world is None else float(world["time"])
    planned_at = None if world is None else float(world["time"]) - float(world["seconds"])
    ended_at = seen_at if end is None else float(end["time"])
    lost = max(0, struck.step - resume_step, 0 if end is None else int(end["lost_steps"]))
    target = struck.target
    return StrikeCost(
        fault=target.kind,
        node=target.node,
        rank=target.rank,
        pids=struck.pids,
        rung="" if world is None else str(world["rung"]),
        seconds_to_detect=_between(struck.killed_at, evidence),
        seconds_to_agree=_between(evidence, planned_at),
        seconds_to_form=_between(planned_at, formed_at),
        seconds_to_redo=_between(formed_at, ended_at),
        seconds_to_next_step=round(seen_at - struck.killed_at, 4),
        seconds_by_events=None if end is None else _between(struck.killed_at, ended_at),
        steps_lost=lost,
        resume_step=resume_step,
    )


def _first_evidence(struck: Strike, events: Sequence[Event], end: Event | None) -> float | None:
    if end is not None:
        return max(struck.killed_at, float(end["time"]) - float(end["seconds"]))
    kinds = ("fault_detected", "node_lost")
    times = [float(e["time"]) for kind in kinds for e in _after(struck, events, kind)]
    return min(times, default=None)


def _after(struck: Strike, events: Iterable[Event], kind: str) -> Iterable[Event]:
    for event in events:
        if event.get("kind") != kind or float(event["time"]) < struck.killed_at:
            continue
        worldly = kind in ("world_formed", "recovery_finished")
        if not worldly or int(event.get("generation") or 0) > struck.generation:
            yield event


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else round(max(0.0, end - start), 4)
