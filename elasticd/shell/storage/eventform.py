"""What an event is, and how a file has many of them: in the frames of the journal."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from typing import Any

from elasticd.shell.storage.journal import frame, salvage
from elasticd.types import is_job_id

NOTABLE = frozenset(
    (
        "fault_detected", "recovery_started", "recovery_finished", "batch_shrunk",
        "memory_relieved", "memory_pressure", "link_avoided", "node_dropped", "node_benched",
        "node_quarantined", "node_unfit", "recheck_differs", "state_chosen", "shares_moved",
        "growth_finished", "lineages_met", "lineage_opened", "step_skipped", "job_parked",
        "job_paused", "checkpoint_refused", "exact_lost", "job_stops", "memory_given_back",
        "updates_on_cpu", "output_skipped", "output_not_copied",
    )
)  # fmt: skip
"""Faults, and what was decided: ``status`` shows the newest :data:`NOTABLE_EVENTS` of a job."""
NOTABLE_EVENTS = 5
LAST_EVENTS = ("job_finished", "job_failed", "job_cancelled")
MAX_EVENT_BYTES = 64 * 1024
CLIPPED_LETTERS = 2000
CLIPPED_ITEMS = 8

CLUSTER_FILE = "_cluster"
_OUTLIVES = "_outlives"
"""An event has it that stays where those around it were dropped."""

Event = dict[str, Any]
Key = tuple[str, int]
"""An event's origin and number."""


def key_of(event: Event) -> Key:
    origin, number = event["origin"], event["number"]
    if not isinstance(origin, str) or type(number) is not int or number < 1:
        raise ValueError("an event's origin is a text and its number a positive integer")
    return origin, number


def order_of(event: Event) -> tuple[float, str, int]:
    return (float(event["time"]), *key_of(event))


def file_name(event: Event) -> str:
    """Of the file that the event belongs into.

    Raises:
        ValueError: its job is none.
    """
    job = event.get("job")
    if job is None:
        return CLUSTER_FILE
    # A job's name comes from other nodes and becomes the name of a file.
    if not isinstance(job, str) or not is_job_id(job):
        raise ValueError(f"{str(job)[:80]!r} is no job")
    return job


def check(event: Event) -> None:
    """That it is one, wherever it comes from.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is none.
    """
    file_name(event)
    key_of(event)
    time = event["time"]
    if type(time) not in (int, float) or not isfinite(time):
        raise ValueError("an event's time is a number")
    if not isinstance(event.get("kind", ""), str):
        raise ValueError("an event's kind is a text")


def is_sound(event: Any) -> bool:
    try:
        check(event)
    except (AttributeError, LookupError, TypeError, ValueError):
        return False
    return True


def outliving(event: Event) -> Event:
    """As it stays where those around it are dropped: the history that is shown begins later."""
    return {**event, _OUTLIVES: True}


def outlives(event: Event) -> bool:
    return _OUTLIVES in event


def public(event: Event) -> Event:
    hidden = ("origin", "number", _OUTLIVES)
    return {key: value for key, value in event.items() if key not in hidden}


def fitting(event: Event) -> Event:
    """One that may be kept. Of an event that is too long the long texts lose their beginnings: of a
    traceback, the last lines matter."""
    return _clipped(event) if len(frame([event])) > MAX_EVENT_BYTES else event


def _clipped(value: Any) -> Any:
    match value:
        case str() if len(value) > CLIPPED_LETTERS:
            return "…" + value[-CLIPPED_LETTERS:]
        case dict():
            return {key: _clipped(item) for key, item in value.items()}
        case list() | tuple():
            return [_clipped(item) for item in value[-CLIPPED_ITEMS:]]
        case _:
            return value


def sound_in(path: Path) -> list[Event]:
    """The events in a file.

    Raises:
        OSError: it can't be read, now or ever: that says nothing of what is in it.
    """
    return [event for event in salvage(path.read_bytes()) if is_sound(event)]


def read_sound(path: Path) -> list[Event]:
    """The events in a file; none if it can't be read."""
    try:
        return sound_in(path)
    except OSError:
        return []


def by_key(events: Iterable[Event]) -> dict[Key, Event]:
    return {key_of(event): event for event in events}


def frames(events: Iterable[Event]) -> bytes:
    return b"".join(frame([event]) for event in events)
