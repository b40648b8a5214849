"""What a member has told the leader of its trainer's calls of ``run.on_main``, in one world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from elasticd.core.words.worlds import Counted, Returned

_KEPT_BODIES = 3
"""Members are at most one body apart."""


@dataclass(slots=True)
class CallReports:
    """What was on its way to one leader is told to the next."""

    tell: Callable[[Returned | Counted], None]
    results: dict[tuple[int, int], Returned] = field(default_factory=dict)
    counts: dict[int, Counted] = field(default_factory=dict)

    def returned(self, told: Returned) -> None:
        """A function has run here."""
        self.results[told.body, told.index] = told
        for key in [key for key in self.results if key[0] <= told.body - _KEPT_BODIES]:
            del self.results[key]
        self.tell(told)

    def counted(self, told: Counted) -> None:
        """So many results are here."""
        self.counts[told.body] = told
        for body in [body for body in self.counts if body <= told.body - _KEPT_BODIES]:
            del self.counts[body]
        self.tell(told)

    def all(self) -> list[Returned | Counted]:
        """For a leader that may have heard none of it."""
        return [*self.results.values(), *self.counts.values()]
