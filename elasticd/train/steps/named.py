"""The figures that a script has given to ``run.log``, as they are shown beside the loss."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from elasticd.settings.rules import encodable
from elasticd.types import MOST_NAME_LETTERS, MOST_NAMED


class GivenNumbers:
    """What one process gives to ``run.log``, as numbers by names that can be told.

    A figure that is none is no reason to end a job. It is passed over, and said once of each name;
    a text is passed over in silence.
    """

    def __init__(self) -> None:
        self._complained: set[str] = set()

    def of(self, values: Mapping[str, Any]) -> dict[str, float]:
        """Those of ``values`` that are numbers, one-element arrays too."""
        found: dict[str, float] = {}
        for given, value in values.items():
            name = encodable(given)
            if isinstance(value, str | bytes):
                continue
            if not name:
                self._complain(name, "it has no name")
            elif (number := _number(value)) is None:
                self._complain(name, f"its {type(value).__name__} is no number that fits")
            else:
                found[name] = number
        return found

    def _complain(self, name: str, why: str) -> None:
        if name not in self._complained and len(self._complained) < MOST_NAMED:
            self._complained.add(name)
            shown = name[:MOST_NAME_LETTERS]
            print(f"elasticd: run.log: {shown!r} is not shown: {why}", file=sys.stderr)


def _number(value: Any) -> float | None:
    size = getattr(value, "size", 1)
    try:
        if isinstance(size, int) and size != 1:
            return None
        return float(value.item() if getattr(value, "ndim", 0) else value)
    except (TypeError, ValueError, OverflowError):
        return None


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


class BestFigure:
    """What ``checkpoint.keep_best`` names: a state that has no such number can't be the best one.
    That is said once of each reason."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._said: set[str] = set()

    def stored(self, step: int, value: float | None, *, last: bool) -> None:
        """The state of ``step`` is stored, with this value; None: nobody has given one so far."""
        if not self._name or (value is not None and math.isfinite(value)):
            return
        if value is not None:
            why = f"is {value} at step {step}. A state that is stored with that is never the best"
            self._say("not finite", why)
        elif last and step > 0:
            self._say("never", "was never given to run.log. So no state is kept as the best")

    def _say(self, reason: str, why: str) -> None:
        if reason not in self._said:
            self._said.add(reason)
            name = self._name[:MOST_NAME_LETTERS]
            print(f"elasticd: checkpoint.keep_best: {name!r} {why}", file=sys.stderr)
