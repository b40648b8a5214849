"""What the events of a job say of its course: faults, recoveries, steps and stretches of time."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from elasticd.cli.reports.fields import number, several, whole, words

StretchKind = Literal["training", "regrouping", "detection", "parked", "waiting", "paused"]
"""What a stretch of time went to; a later kind counts where two fall together."""
_KINDS: tuple[StretchKind, ...] = get_args(StretchKind)
_BEGINS: Mapping[str, StretchKind] = {
    "job_submitted": "waiting",
    "world_formed": "training",
    "job_parked": "parked",
    "job_paused": "paused",
    "job_resumed": "waiting",
    "job_yielded": "waiting",
}
_ENDS = ("job_finished", "job_failed", "job_cancelled")
_STEP_OF = {
    "world_formed": "resume_step",
    "checkpoint_committed": "step",
    "job_paused": "step",
    "job_finished": "steps",
}
"""Events that say which step was reached, and in which field."""
_EVIDENCE_LETTERS = 300
MOST_EVIDENCE = 4


@dataclass(frozen=True, slots=True)
class SeenFault:
    """As the event ``fault_detected`` says it. ``begun``, ``detected``: when the earliest evidence
    was seen, and when it was known for a fault, in Unix time. It is told later: once it is known
    from where the job goes on."""

    fault: str
    rank: int | None
    node: str
    evidence: tuple[str, ...]
    confidence: str
    seconds: float | None
    begun: float
    detected: float


@dataclass(frozen=True, slots=True)
class DoneRecovery:
    """As the event ``recovery_finished`` says it."""

    time: float
    rung: str
    seconds: float
    lost_steps: int
    resume_step: int | None


@dataclass(frozen=True, slots=True)
class StepMark:
    """A step that was reached by then; ``resumed``: a world went on from it."""

    time: float
    step: int
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class Stretch:
    """Time that went to one thing."""

    begin: float
    end: float
    kind: StretchKind

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Chronicle:
    """Of one job, in the order of time.

    Attributes:
        begin, end: of what the events tell; ``end`` is the job's, or the time of asking.
        whole: they tell it from the submission on.
        stall_seconds, growth_seconds: for which training stood still, for checkpoints and for
            members that joined.
    """

    begin: float
    end: float
    whole: bool
    ended: bool
    faults: tuple[SeenFault, ...]
    recoveries: tuple[DoneRecovery, ...]
    marks: tuple[StepMark, ...]
    stretches: tuple[Stretch, ...]
    stall_seconds: float
    growth_seconds: float

    @property
    def lost_steps(self) -> int:
        return sum(each.lost_steps for each in self.recoveries)

    def seconds(self, *kinds: StretchKind) -> float:
        """How long all stretches of these kinds are together."""
        return sum(each.seconds for each in self.stretches if each.kind in kinds)


class Reader:
    """Takes in the events of a job, in any order; of each it keeps a few figures."""

    def __init__(self) -> None:
        self._first, self._last = float("inf"), 0.0
        self._submitted: float | None = None
        self._ended: float | None = None
        self._faults: list[SeenFault] = []
        self._recoveries: list[DoneRecovery] = []
        self._marks: list[StepMark] = []
        self._turns: list[tuple[float, StretchKind]] = []
        self._started: list[float] = []
        self._stalls = self._pauses = 0.0

    def take(self, event: Mapping[str, Any]) -> None:
        """One event; what has no time tells nothing."""
        time, kind = number(event, "time"), str(event.get("kind"))
        if time is None:
            return
        self._first, self._last = min(self._first, time), max(self._last, time)
        if kind in _BEGINS:
            self._turns.append((time, _BEGINS[kind]))
        if (field := _STEP_OF.get(kind)) and (step := whole(event, field)) is not None:
            self._marks.append(StepMark(time, step, kind == "world_formed"))
        if kind in _ENDS:
            self._ended = max(time, self._ended or time)
        if kind == "job_submitted":
            self._submitted = time
        elif kind == "fault_detected":
            self._faults.append(_fault(event, time))
        elif kind == "recovery_started":
            self._started.append(time)
        elif kind == "recovery_finished":
            self._recoveries.append(_recovery(event, time))
        elif kind == "checkpoint_committed":
            self._stalls += max(0.0, number(event, "stall_seconds") or 0.0)
        elif kind == "growth_finished":
            self._pauses += max(0.0, number(event, "pause_seconds") or 0.0)

    def result(self, now: float) -> Chronicle | None:
        """What there is to say at ``now``; None: there was no event."""
        if not self._last:
            return None
        begin = self._first if self._submitted is None else self._submitted
        end = max(begin, max(now, self._last) if self._ended is None else self._ended)
        faults = tuple(sorted(self._faults, key=lambda each: each.detected))
        recoveries = tuple(sorted(self._recoveries, key=lambda each: each.time))
        turns = sorted(self._turns) or [(begin, "training")]
        overlays = [(max(begin, r.time - r.seconds), r.time) for r in recoveries]
        if (unfinished := self._unfinished()) is not None:
            overlays.append((unfinished, end))
        told: list[Stretch] = [
            *_one_after_another(turns, begin, end),
            *(Stretch(a, min(b, end), "regrouping") for a, b in overlays),
            *(
                Stretch(max(a, f.begun), min(b, f.detected), "detection")
                for a, b in overlays
                for f in faults
                if f.begun < b and f.detected > a
            ),
        ]
        return Chronicle(
            begin, end, self._submitted is not None, self._ended is not None,
            faults, recoveries, tuple(sorted(self._marks, key=lambda m: (m.time, m.step))),
            partition([each for each in told if each.seconds > 0]), self._stalls, self._pauses,
        )  # fmt: skip

    def _unfinished(self) -> float | None:
        """Since when a recovery goes on: nothing has come of it yet."""
        started = max(self._started, default=0.0)
        after = [r.time for r in self._recoveries] + [m.time for m in self._marks]
        if not started or any(time > started for time in after):
            return None
        done = max((each.time for each in self._recoveries), default=0.0)
        return min([started, *(f.begun for f in self._faults if f.begun > done)])


def _fault(event: Mapping[str, Any], time: float) -> SeenFault:
    seconds = number(event, "seconds_to_detect")
    begun, detected = number(event, "evidence_time"), number(event, "detected_time")
    if begun is None or detected is None or not begun <= detected <= time + 1:
        begun, detected = time - max(0.0, seconds or 0.0), time
    evidence = several(event, "evidence") or [event.get("reason") or ""]
    return SeenFault(
        words(event, "fault", 40),
        whole(event, "rank"),
        words(event, "node", 100),
        tuple(words({"": e}, "", _EVIDENCE_LETTERS) for e in evidence[:MOST_EVIDENCE]),
        words(event, "confidence", 40),
        seconds,
        begun,
        detected,
    )


def _recovery(event: Mapping[str, Any], time: float) -> DoneRecovery:
    return DoneRecovery(
        time,
        words(event, "rung", 40),
        max(0.0, number(event, "seconds") or 0.0),
        max(0, whole(event, "lost_steps") or 0),
        whole(event, "resume_step"),
    )


def _one_after_another(
    turns: list[tuple[float, StretchKind]], begin: float, end: float
) -> list[Stretch]:
    """Each lasts until the next begins."""
    ends = [*(time for time, _ in turns[1:]), end]
    head = [Stretch(begin, turns[0][0], "waiting")]
    return head + [
        Stretch(max(begin, time), min(until, end), kind)
        for (time, kind), until in zip(turns, ends, strict=True)
    ]


def partition(stretches: list[Stretch]) -> tuple[Stretch, ...]:
    """The same time, each moment of it counted once: as the last of :data:`StretchKind` there."""
    edges: list[tuple[float, int, StretchKind]] = []
    for each in stretches:
        edges.append((each.begin, 1, each.kind))
        edges.append((each.end, -1, each.kind))
    edges.sort()
    open_: dict[StretchKind, int] = dict.fromkeys(_KINDS, 0)
    found: list[Stretch] = []
    for (time, change, kind), (until, _, _) in itertools.pairwise(edges):
        open_[kind] += change
        there: list[StretchKind] = [each for each in _KINDS if open_[each]]
        if not there or until <= time:
            continue
        if found and found[-1].kind == there[-1] and found[-1].end == time:
            found[-1] = Stretch(found[-1].begin, until, there[-1])
        else:
            found.append(Stretch(time, until, there[-1]))
    return tuple(found)
