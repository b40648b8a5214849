"""The figures that a script has given to ``run.log``, as they are shown beside the loss."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from elasticd.types import MOST_NAME_LETTERS, MOST_NAMED


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """What was given to ``run.log``; texts are passed over."""
    return {name: float(value) for name, value in values.items() if not isinstance(value, str)}


class NamedValues:
    """Of one process: of each name the last value, with the step in whose body it was given.

    The first names count, so a curve that has begun goes on.
    """

    def __init__(self, always: str = "") -> None:
        """``always``: a name that counts however many there are."""
        self._always = always
        self._last: dict[str, tuple[int, float]] = {}
        self._warned = False

    def take(self, step: int, values: Mapping[str, float]) -> None:
        """The body of ``step`` is over. What was given in later ones belongs to a state that is
        gone."""
        self._last = {name: last for name, last in self._last.items() if last[0] <= step}
        for name, value in values.items():
            if name in self._last or self._has_room(name):
                self._last[name] = (step, value)
            elif not self._warned:
                self._warned = True
                print(
                    f"elasticd: run.log: {name[:MOST_NAME_LETTERS]!r} is not shown. The first"
                    f" {MOST_NAMED} names are, of at most {MOST_NAME_LETTERS} letters",
                    file=sys.stderr,
                )

    def _has_room(self, name: str) -> bool:
        if name == self._always:
            return True
        return len(name) <= MOST_NAME_LETTERS and sum(1 for _ in self._others()) < MOST_NAMED

    def _others(self) -> Iterator[str]:
        return (name for name in self._last if name != self._always)

    def of(self, name: str) -> float | None:
        """The last value of that name."""
        return self._last[name][1] if name in self._last else None

    @property
    def last(self) -> dict[str, tuple[int, float]]:
        """What is shown: each step with its value."""
        return {n: last for n, last in self._last.items() if len(n) <= MOST_NAME_LETTERS}
