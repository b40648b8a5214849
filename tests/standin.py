"""What a stand-in for a daemon says of a cluster of any size, to the page and to a monitor."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

JOB = "byte-lm-1-k3f9"
_STEP, _STEPS, _PACE = 420, 2000, 6.0
_SPENT = {"data": 0.0005, "compute": 0.079, "reduce": 0.054, "update": 0.007, "waiting": 0.002,
          "checkpoint": 0.0, "script": 0.001}  # fmt: skip


def answers(now: float, nodes: int = 3) -> dict[str, Any]:
    """Of a cluster of so many nodes."""
    looks = itertools.count()
    steps = range(1, _STEP, 6)
    losses = [[s, 2.1 + 3.4 * math.exp(-s / 60) + 0.08 * math.sin(s)] for s in steps]
    values = [[s, 3.0 + 4.5 * math.exp(-s / 90)] for s in range(20, _STEP, 20)]
    stored = [_checkpoint(now, step) for step in (400, 410, 420)]
    lines = "".join(f"step {s}: loss {loss:.3f}\n" for s, loss in losses[-6:])
    return {
        "status": lambda request: [_status(next(looks), nodes)],
        "events": [*_events(now), {"end": True}],
        "losses": {"losses": losses, "values": {"held_out_bits_per_byte": values}, "ranks": []},
        "checkpoints": {"checkpoints": stored, "silent": {}},
        "logs": [{"rank": 0, "node": "node-0", "text": lines}, {"end": True}],
    }


def _status(look: int, count: int = 3) -> dict[str, Any]:
    up = {"state": "up", "round_trip_seconds": 0.0004}
    nodes = [
        {
            "id": f"node-{n}", "address": f"10.0.0.{n + 1}:7070", "state": "alive", "pid": 4100 + n,
            "chip": "M4 Max", "memory_bytes": 64 << 30, "version": "0.1.0",
            "links": [up] if n else [],
        }
        for n in range(count)
    ]  # fmt: skip
    ranks = [
        {
            "rank": n, "node": f"node-{n}", "step": _STEP, "grains": (3, 3, 2)[n % 3],
            "grain_seconds": (0.026, 0.027, 0.039)[n % 3], "seconds": _SPENT,
        }
        for n in range(count)
    ]  # fmt: skip
    job: dict[str, Any] = {
        "id": JOB, "name": "byte-lm", "state": "running", "reason": None, "generation": 4,
        "step": _STEP, "steps": _STEPS, "loss": 2.108, "steps_per_second": _PACE + math.sin(look),
        "global_batch": 64, "micro_batch": 8, "recoveries": 2, "lost_steps": 0, "exact": True,
        "digest": "ab12", "digest_step": _STEP, "ranks": ranks, "values": {},
    }  # fmt: skip
    view = {"epoch": 3, "leader": "node-0", "members": [node["id"] for node in nodes]}
    return {
        "cluster": "studio", "view": view, "loop": {"node": "node-0"}, "nodes": nodes, "jobs": [job]
    }  # fmt: skip


def _checkpoint(now: float, step: int) -> dict[str, Any]:
    return {
        "step": step, "lineage": "k3f9", "bytes": 48 << 20, "shards": 3, "replicas": 2,
        "consistent": True, "created": now - (_STEP - step) / _PACE,
        "holders": ["node-0", "node-1", "node-2"], "digest": f"{step:04x}",
    }  # fmt: skip


def _events(now: float) -> Iterator[dict[str, Any]]:
    """A trainer is killed, then a reducer."""
    begun = now - 75.0

    def event(at: float, kind: str, reason: str, **more: Any) -> dict[str, Any]:
        said = {"time": begun + at, "node": "node-0", "job": JOB, "generation": 1, "kind": kind}
        return {**said, "reason": reason, **more}

    def stored(at: float, step: int) -> dict[str, Any]:
        text = f"step {step} is stored on 2 nodes"
        sizes = {"bytes": 48 << 20, "replicas": 2, "stall_seconds": 0.004, "write_seconds": 0.3}
        return event(at, "checkpoint_committed", text, step=step, **sizes)

    yield event(0.0, "job_submitted", f"{JOB} was submitted")
    yield event(2.0, "world_formed", "3 nodes train", members=["node-0", "node-1", "node-2"],
                resume_step=0, seconds=0.6, rung="start")  # fmt: skip
    yield stored(2.5, 0)
    yield stored(20.0, 100)
    for at, fault, rank, evidence, rung, seconds in (
        (25.0, "worker_exit", 1, "trainer of node-1 was killed by signal 9", "regroup", 0.62),
        (45.0, "reducer_lost", 2, "reducer of node-2 was killed by signal 9", "retry", 0.21),
    ):
        yield event(at, "fault_detected", evidence, fault=fault, rank=rank, evidence=[evidence],
                    seconds_to_detect=0.03, confidence="certain",
                    ) | {"node": f"node-{rank}"}  # fmt: skip
        yield event(at + 0.01, "recovery_started", f"{rung} after {fault}")
        yield event(at + seconds, "recovery_finished", f"{rung} took {seconds} s", rung=rung,
                    seconds=seconds, lost_steps=0, resume_step=int(at * 5))  # fmt: skip
        yield stored(at + 10.0, int(at * 5) + 60)
    yield stored(74.0, _STEP)
