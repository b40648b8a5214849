"""What of a job's events is asked for however much has come since: the newest faults and decisions,
who trained last, and how it ended.

These few stay in the job's file when the oldest are dropped, so every start and every node that
joins finds them there. They are at hand, too, for who asks again and again. The history that is
shown begins behind them all the same: between them and what comes next something is missing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from elasticd.shell.storage.eventform import (
    LAST_EVENTS,
    NOTABLE,
    NOTABLE_EVENTS,
    Event,
    by_key,
    order_of,
)

WORLD = "world_formed"
LASTING = NOTABLE | {WORLD, *LAST_EVENTS}
"""Kinds of which some last."""
LAST_WORLDS = 16
"""Of each job, and so many ends of it."""
LARGER_WORLDS = 64
"""Besides: each has more ranks than all that came later, so it says who had those last."""
_UNPICKED = 256
KEPT_JOBS = 64
"""Of so many jobs whose events lie on the disk they stay at hand: of those that have not ended
before others, and of those asked for or told of last."""


def lasting(events: Iterable[Event]) -> list[Event]:
    """Those of one job that last, in the order of time. What doesn't last will not do so later,
    except for a world of which it is told later that the job finished in it."""
    told = sorted((each for each in events if each.get("kind") in LASTING), key=order_of)
    ends = [each for each in told if each["kind"] in LAST_EVENTS][-LAST_WORLDS:]
    finished = {_generation(each) for each in ends if each["kind"] == "job_finished"}
    worlds = [each for each in told if each["kind"] == WORLD]
    last = sorted(worlds, key=lambda each: (_generation(each) in finished, _generation(each)))
    larger, most = list[Event](), -1
    for each in reversed(worlds):
        if (ranks := len(members_of(each))) > most:
            larger.append(each)
            most = ranks
    notable = [each for each in told if each["kind"] in NOTABLE][-NOTABLE_EVENTS:]
    kept = by_key([*ends, *last[-LAST_WORLDS:], *larger[:LARGER_WORLDS], *notable])
    return sorted(kept.values(), key=order_of)


def _generation(event: Event) -> int:
    found = event.get("generation")
    return found if isinstance(found, int) else -1


def members_of(world: Event) -> list[str]:
    """By their ranks, as another node may have told of them."""
    members = world.get("members")
    return list(members) if isinstance(members, list | tuple) else []


class LastingEvents:
    """Per job, in the order of time. Runs in the event loop's thread."""

    def __init__(self, ended: Container[str]) -> None:
        self._ended = ended
        self._in_memory: dict[str, list[Event]] = {}
        """Others among them, up to :data:`_UNPICKED` together: to pick takes longer than to add."""
        self._put_away: dict[str, list[Event]] = {}
        """The one that was asked for last is the last."""
        self.missed = 0
        """So many came of jobs of which the earlier ones are not at hand."""

    def of(self, job: str, on_disk: bool) -> list[Event] | None:
        """None: they are to be looked for on the disk, where the job's events are."""
        known = self._put_away.pop(job, None)
        if known is not None:
            self._put_away[job] = known
        if on_disk or known is not None:
            return known
        if (some := self._in_memory.get(job)) is None:
            return []
        self._in_memory[job] = picked = lasting(some)
        return picked

    def add(self, job: str, event: Event, on_disk: bool) -> None:
        """``on_disk``: earlier ones of the job lie there only."""
        known = self.of(job, on_disk=True)  # it was told of last
        if event.get("kind") not in LASTING:
            return
        if known is not None:
            self._put_away[job] = lasting([*known, event])
        elif on_disk:
            self.missed += 1
        else:
            some = [*self._in_memory.get(job, ()), event]
            self._in_memory[job] = some if len(some) < _UNPICKED else lasting(some)

    def again(self, job: str, events: Iterable[Event] | None) -> None:
        """The job has ended, in an older world than those at hand, perhaps. ``events``: all of the
        job; None: some lie on the disk, where they are looked for when somebody asks."""
        if events is not None:
            self._in_memory[job] = lasting(events)
        else:
            self._put_away.pop(job, None)
            self.missed += 1

    def put_away(self, job: str) -> None:
        """Its events are on the disk only from now on, and nothing of it was there before."""
        self._keep(job, lasting(self._in_memory.pop(job, [])))

    def put_back(self, job: str, missed: int, events: list[Event]) -> None:
        """These were read from the disk. They count if nothing has been missed since ``missed``."""
        if missed == self.missed:
            self._keep(job, events)

    def _keep(self, job: str, events: list[Event]) -> None:
        self._put_away[job] = events
        if len(self._put_away) > KEPT_JOBS:
            oldest = next(iter(self._put_away))
            del self._put_away[next((j for j in self._put_away if j in self._ended), oldest)]

    def drop(self, job: str) -> None:
        """Of the job nothing is at hand any more."""
        self._in_memory.pop(job, None)
        self._put_away.pop(job, None)
