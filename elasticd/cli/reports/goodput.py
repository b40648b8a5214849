"""How much of the time went into steps that count, and what took the rest."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from elasticd.cli.reports.chronicle import Chronicle, StepMark

_AT_ONCE_SECONDS = 1.0
_LEAST_SECONDS = 2.0
"""Between two marks: checkpoints are told up to a second late. A speed over less says nothing."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """Seconds of the time in which it was the job's turn: neither waiting for it, nor paused.

    ``redone`` is an estimate: the steps that were lost, at the mean pace of all. The rest is summed
    from events. ``useful``: None if it trained, but no event says that a step was reached: they
    tell of that with the first checkpoint.
    """

    turn: float
    useful: float | None
    detection: float
    regrouping: float
    parked: float
    redone: float
    checkpoints: float
    growth: float
    waiting: float
    paused: float

    @property
    def share(self) -> float | None:
        """Useful step time over wall time; None: it never had its turn, or it is unknown."""
        return None if self.useful is None or self.turn <= 0 else self.useful / self.turn


def goodput(course: Chronicle) -> Goodput:
    """Of what the events tell."""
    training = course.seconds("training")
    checkpoints = min(course.stall_seconds, training)
    growth = min(course.growth_seconds, training - checkpoints)
    stepping = training - checkpoints - growth
    reached = max((mark.step for mark in course.marks), default=0)
    lost = course.lost_steps
    redone = stepping * lost / (reached + lost) if reached else 0.0
    waiting, paused = course.seconds("waiting"), course.seconds("paused")
    return Goodput(
        turn=sum(each.seconds for each in course.stretches) - waiting - paused,
        useful=stepping - redone if reached or not stepping else None,
        detection=course.seconds("detection"),
        regrouping=course.seconds("regrouping"),
        parked=course.seconds("parked"),
        redone=redone,
        checkpoints=checkpoints,
        growth=growth,
        waiting=waiting,
        paused=paused,
    )


def speeds(marks: Sequence[StepMark]) -> list[tuple[float, float, float]]:
    """From when until when so many steps a second were made, between checkpoints. A stretch with a
    break in it is as slow as that made it.

    Only steps beyond the newest that was told before count: an older checkpoint, or the same one
    again, is no progress, and tells nothing of when the next steps began. A world that goes on from
    there does tell it. One that goes on from a newer step than any checkpoint's doesn't: telling of
    checkpoints takes its time. Of several that are told at once, because nobody was there to hear
    of them, the last one counts.
    """
    found: list[tuple[float, float, float]] = []
    newest: StepMark | None = None
    for place, mark in enumerate(marks):
        if newest is None:
            newest = mark
        elif mark.resumed:
            if mark.step <= newest.step:
                newest = StepMark(mark.time, newest.step)
        elif mark.step > newest.step and mark.time - newest.time >= _LEAST_SECONDS:
            furthest = _furthest(marks, place)
            speed = (furthest.step - newest.step) / (furthest.time - newest.time)
            found.append((newest.time, furthest.time, speed))
            newest = furthest
    return found


def _furthest(marks: Sequence[StepMark], place: int) -> StepMark:
    """The mark at ``place``, or the furthest that was told with it."""
    furthest = mark = marks[place]
    for later in itertools.islice(marks, place + 1, None):
        if later.resumed or later.time > mark.time + _AT_ONCE_SECONDS:
            break
        furthest = max(furthest, later, key=lambda each: each.step)
    return furthest
