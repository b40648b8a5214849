"""Checkpoints that are in use here, and so are not removed."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Lock

from elasticd.errors import StateError
from elasticd.types import JobId, Stamp

Key = tuple[JobId, int, Stamp]


class GoingError(StateError):
    """A checkpoint is being removed."""


@dataclass(slots=True)
class Pins:
    """Counts the uses of each, and its removals: while there is one of the one there is none of the
    other. From any thread; nobody waits."""

    _uses: Counter[Key] = field(default_factory=Counter)
    _removals: Counter[Key] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)

    @contextlib.contextmanager
    def held(self, job: JobId, step: int, stamp: Stamp) -> Iterator[None]:
        """Keep a checkpoint from being removed in the meantime.

        Raises:
            GoingError: it is being removed.
        """
        key = (job, step, stamp)
        if not self._begin(key, self._uses, self._removals):
            raise GoingError(f"step {step} is being removed")
        try:
            yield
        finally:
            self._end(key, self._uses)

    @contextlib.contextmanager
    def removal(self, job: JobId, step: int, stamp: Stamp) -> Iterator[bool]:
        """Whether a checkpoint may be removed in the meantime: nobody uses it, nor begins to."""
        key = (job, step, stamp)
        free = self._begin(key, self._removals, self._uses)
        try:
            yield free
        finally:
            if free:
                self._end(key, self._removals)

    def all(self) -> tuple[Key, ...]:
        """Those that are in use now."""
        with self._lock:
            return tuple(self._uses)

    def _begin(self, key: Key, wanted: Counter[Key], other: Counter[Key]) -> bool:
        with self._lock:
            free = key not in other
            if free:
                wanted[key] += 1
            return free

    def _end(self, key: Key, ended: Counter[Key]) -> None:
        with self._lock:
            ended[key] -= 1
            if not ended[key]:
                del ended[key]
