"""Some of what a function makes ahead of need is made again when it has been used, to see that it
reads nothing that has changed since."""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from elasticd.errors import UsageError
from elasticd.train.steps.likeness import sample_digest

_EVERY = 31
"""A prime, and less than are held as a rule: so, wherever in a step they fall, some of what was
fetched before the loop's body ran is among those that are compared."""


class Rounds:
    """Which of the samples that threads have fetched are compared: soon one, and later ones that
    lie further apart."""

    def __init__(self) -> None:
        self._every, self._since = 1, 0

    def due(self) -> bool:
        """Of the next sample."""
        self._since += 1
        if self._since < self._every:
            return False
        self._every, self._since = min(2 * self._every + 1, _EVERY), 0
        return True


@dataclass(frozen=True, slots=True)
class _Made:
    """What a function made of a row."""

    again: Callable[[], Any]
    digest: str
    name: str
    due: int
    """When so many samples are taken it is made again."""


class MadeAgain:
    """Of what the functions above one reader make, on its thread perhaps. They are never called on
    two threads at once."""

    def __init__(self, what: str, ahead: int) -> None:
        """``what`` reads it, and holds so many samples at most."""
        self._what = what
        # Longer than that, so that at any time some wait to be made again, however few are held.
        self._apart, self._taken = ahead + 2 * _EVERY, 0
        self._rounds = Rounds()
        self._calling = threading.Lock()
        self._made: deque[_Made] = deque()

    def made(self, make: Callable[[Any], Any], row: Any, name: str) -> Any:
        """What ``make`` makes of a row."""
        copied = _copied(row) if self._rounds.due() else None
        with self._calling:
            result = make(row)
        if copied is not None:
            due = self._taken + self._apart
            with suppress(Exception):  # arrays of MLX's, say: those are refused elsewhere
                self._made.append(_Made(partial(make, *copied), sample_digest(result), name, due))
        return result

    def taken(self) -> None:
        """A sample was taken, and is used; on the taker's thread.

        Raises:
            UsageError: what was made then is another now.
        """
        self._taken += 1
        while self._made and self._made[0].due <= self._taken:
            then = self._made.popleft()
            with self._calling:
                now = sample_digest(then.again())
            if now != then.digest:
                raise UsageError(
                    f"what stands above {self._what} makes another sample at {then.name} now than"
                    " when that was read ahead: it reads something that has changed since, such as"
                    " what the loop's body changes. How far ahead it is read is not alike on all"
                    f" ranks: put that map() behind {self._what}"
                )


def _copied(row: Any) -> tuple[Any] | None:
    """A function may change what it is given. None: nobody can copy it."""
    with suppress(Exception):
        return (copy.deepcopy(row),)
    return None
