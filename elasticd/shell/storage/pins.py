"""Checkpoints that are in use here, and so are not removed."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from elasticd.types import JobId, Stamp

Key = tuple[JobId, int, Stamp]


@dataclass(slots=True)
class Pins:
    """Counts the uses of each."""

    _uses: Counter[Key] = field(default_factory=Counter)

    @contextlib.contextmanager
    def held(self, job: JobId, step: int, stamp: Stamp) -> Iterator[None]:
        """Keep a checkpoint from being removed in the meantime."""
        key = (job, step, stamp)
        self._uses[key] += 1
        try:
            yield
        finally:
            self._uses[key] -= 1

    def all(self) -> tuple[Key, ...]:
        """Those that are in use now."""
        return tuple(key for key, uses in self._uses.items() if uses > 0)

    def __contains__(self, key: Key) -> bool:
        return self._uses[key] > 0
