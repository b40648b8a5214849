"""What the monitor knows at one moment, and which job it shows. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elasticd.cli.keptlosses import KeptCurves, Named, value_of
from elasticd.cli.output import ENDED, in_order
from elasticd.core.jobs.losses import Loss, LossCurve

Event = Mapping[str, Any]

MOST_EVENTS = 50
MOST_FAULTS = 100
MOST_LOSSES = 400
MOST_LOG_LINES = 100
TIMELINE = (
    "fault_detected", "recovery_finished", "growth_finished", "batch_shrunk", "job_parked",
    "node_unfit", "job_failed",
)  # fmt: skip
"""Kinds of events that tell what broke and what was done about it."""


@dataclass(frozen=True, slots=True)
class Scene:
    """``job``: whose events, curves and logs these are. ``named``: by what the script calls them.
    ``trouble``: why this is not new."""

    status: Mapping[str, Any]
    job: str | None = None
    events: tuple[Event, ...] = ()
    faults: tuple[Event, ...] = ()
    losses: tuple[Loss, ...] = ()
    named: Named = field(default_factory=dict)
    logs: tuple[str, ...] = ()
    trouble: str = ""

    @property
    def jobs(self) -> list[Mapping[str, Any]]:
        """As people look for them."""
        return in_order(self.status.get("jobs") or ())

    def described(self, job: str | None) -> Mapping[str, Any] | None:
        """What is said of a job."""
        return next((each for each in self.jobs if each.get("id") == job), None)

    def plain(self, job: str | None) -> dict[str, Any]:
        """As ``--json`` prints it."""
        queue = [each["id"] for each in self.jobs if each.get("state") == "queued"]
        return {
            "cluster": self.status.get("cluster"),
            "view": self.status.get("view"),
            "nodes": self.status.get("nodes") or [],
            "job": self.described(job),
            "queue": queue,
            "losses": [list(each) for each in self.losses],
            "values": {name: [list(each) for each in told] for name, told in self.named.items()},
            "faults": list(self.faults),
            "events": list(self.events),
        }


@dataclass(slots=True)
class Recollection:
    """Of one job, as much as is ever shown."""

    job: str | None
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))
    faults: deque[Event] = field(default_factory=lambda: deque(maxlen=MOST_FAULTS))
    curve: LossCurve = field(default_factory=lambda: LossCurve(MOST_LOSSES))

    def happened(self, event: Event) -> None:
        """One event of the job."""
        self.events.append(event)
        if event.get("kind") in TIMELINE:
            self.faults.append(event)

    def looked(self, job: Mapping[str, Any]) -> None:
        """What ``status`` says of the job."""
        step, loss, lost = job.get("step"), job.get("loss"), job.get("lost_steps")
        if isinstance(step, int) and isinstance(loss, int | float):
            self.curve.take(step, float(loss), lost if isinstance(lost, int) else None)
        values = job.get("values")
        for name, told in values.items() if isinstance(values, Mapping) else ():
            if (point := value_of(told)) is not None:
                self.curve.show(str(name), *point)

    def remember(self, kept: KeptCurves) -> None:
        """What daemons have kept of the time before. What was seen since then comes behind it."""
        seen, self.curve = self.curve, LossCurve(MOST_LOSSES)
        for losses, named in ((kept.losses, kept.named), (seen.points, seen.told())):
            self.curve.recall(losses, named)

    @property
    def losses(self) -> list[Loss]:
        """By step."""
        return self.curve.points

    def scene(self, status: Mapping[str, Any], logs: tuple[str, ...] = ()) -> Scene:
        """With that status."""
        events, faults, losses = tuple(self.events), tuple(self.faults), tuple(self.curve.points)
        return Scene(status, self.job, events, faults, losses, self.curve.told(), logs)


def turned(named: Iterable[str], shown: str) -> str:
    """The name of the curve behind the one that is shown, around the end; "" is the loss."""
    names = ["", *named]
    return names[(names.index(shown) + 1) % len(names)] if shown in names else ""


def first(jobs: Sequence[Mapping[str, Any]]) -> str | None:
    """The job that is shown if none is asked for: the one that has its turn, else the next."""
    going = [job for job in jobs if job.get("state") not in ENDED]
    return next((str(job["id"]) for job in [*going, *jobs]), None)


def moved(jobs: Sequence[Mapping[str, Any]], job: str | None, by: int) -> str | None:
    """The job that is listed so many behind, around the end; the first one if that is gone."""
    ids = [str(each["id"]) for each in jobs]
    if job not in ids:
        return first(jobs)
    return ids[(ids.index(job) + by) % len(ids)]
