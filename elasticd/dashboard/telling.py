"""What the page is told: a look at the cluster each second, and a job's course when it has changed.
Pure; the figures are those of the monitor and of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elasticd.cli.monitors.scene import Event, Scene
from elasticd.cli.output import event_line
from elasticd.cli.reports.chronicle import Chronicle, DoneRecovery, SeenFault
from elasticd.cli.reports.goodput import goodput, speeds
from elasticd.cli.reports.losses import thinned
from elasticd.cli.screen import clean, json_line
from elasticd.dashboard.metrics import CAUSES

MOST_STRETCHES = 400
MOST_TOLD = 100
"""Faults, and recoveries: the last ones."""
_JOB_KEYS = (
    "id", "name", "state", "step", "steps", "loss", "steps_per_second", "recoveries", "lost_steps",
    "reason", "queue_position", "ended",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WatchedJob:
    """``losses`` and ``named`` values by step; ``rates`` (steps a second) by time, since somebody
    watches it."""

    job: str
    course: Chronicle | None
    events: tuple[Event, ...]
    losses: tuple[tuple[int, float], ...]
    rates: tuple[tuple[float, float], ...]
    named: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)


def look(
    status: Mapping[str, Any], job: str | None, now: float, trouble: str, *, live: bool
) -> dict[str, Any]:
    """``job``: the one that the page shows. ``trouble``: what its reader has to know. ``live``:
    this is new; otherwise ``trouble`` says why it isn't."""
    scene = Scene(status)
    return {
        "time": now,
        "trouble": trouble,
        "live": live,
        "asked": (status.get("loop") or {}).get("node"),
        "cluster": status.get("cluster"),
        "view": status.get("view") or {},
        "nodes": status.get("nodes") or [],
        "jobs": [{key: each.get(key) for key in _JOB_KEYS} for each in scene.jobs],
        "job": scene.described(job),
    }


def course(watched: WatchedJob) -> dict[str, Any]:
    """What a job has been through."""
    chronicle, losses = watched.course, [(float(step), loss) for step, loss in watched.losses]
    said: dict[str, Any] = {
        "job": watched.job,
        "losses": [list(each) for each in thinned(losses)],
        "values": {name: [list(each) for each in told] for name, told in watched.named.items()},
        "rates": [list(each) for each in watched.rates],
        "events": [_event(each) for each in reversed(watched.events)],
        "course": None,
    }
    if chronicle is None:
        return said
    spent = goodput(chronicle)
    said["course"] = {
        "begin": chronicle.begin,
        "end": chronicle.end,
        "ended": chronicle.ended,
        "whole": chronicle.whole,
        "goodput": spent.share,
        "turn": spent.turn,
        "went_to": {cause: getattr(spent, cause) for cause in CAUSES},
        "stretches": [[s.begin, s.end, s.kind] for s in chronicle.stretches[-MOST_STRETCHES:]],
        "left_out": max(0, len(chronicle.stretches) - MOST_STRETCHES),
        "faults": [_fault(each) for each in chronicle.faults[-MOST_TOLD:]],
        "recoveries": [_recovery(each) for each in chronicle.recoveries[-MOST_TOLD:]],
        "speeds": [list(each) for each in speeds(chronicle.marks)[-MOST_STRETCHES:]],
    }
    return said


def _event(event: Event) -> dict[str, Any]:
    return {"kind": event.get("kind"), "line": event_line(event)}


def _fault(fault: SeenFault) -> dict[str, Any]:
    return {
        "time": fault.detected,
        "fault": fault.fault,
        "rank": fault.rank,
        "node": fault.node,
        "seconds": fault.seconds,
        "evidence": list(fault.evidence),
        "confidence": fault.confidence,
    }


def _recovery(recovery: DoneRecovery) -> dict[str, Any]:
    return {
        "time": recovery.time,
        "rung": recovery.rung,
        "seconds": recovery.seconds,
        "lost_steps": recovery.lost_steps,
        "resume_step": recovery.resume_step,
    }


def wire(said: Mapping[str, Any]) -> str:
    """On one line, as JSON. In every text what isn't printable is escaped, as ``elasticctl`` does,
    but for line breaks and tabs: what turns the direction of writing, say, is to be seen."""
    return json_line({key: _printable(value) for key, value in said.items()})


def _printable(value: object) -> object:
    if isinstance(value, str):
        return value if value.isprintable() else "\t".join(map(clean, value.split("\t")))
    if isinstance(value, Mapping):
        return {_printable(str(key)): _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    return value
