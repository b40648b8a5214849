"""What a compiled loss reads besides its model: of ``run.state`` the names that its traces ask for,
and those of the tracked things that its code leads to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elasticd.train.states.namespace import Namespace
from elasticd.train.steps.reach import reached


class ReadBesides:
    """By the traces of one compiled function, each of a shape of a batch."""

    def __init__(self, loss: Callable[..., Any], kept: Namespace | None = None) -> None:
        """``kept``: ``run.state``."""
        self._loss, self._kept = loss, Namespace() if kept is None else kept
        self._tracked: dict[str, Any] = {}
        self._names: set[str] = set()
        self._things: dict[str, Any] = {}

    def track(self, name: str, thing: Any) -> None:
        """It is part of the state from now on."""
        self._tracked[name] = thing

    def forget(self) -> None:
        """The traces are gone."""
        self._names, self._things = set(), {}

    def call_begins(self) -> None:
        """Of a function that may be traced by it."""
        self._kept._read.clear()

    def traced(self) -> None:
        """The call that has begun was a trace."""
        self._names |= self._kept._read
        ids = {id(thing) for thing in self._tracked.values()}
        if ids:
            found, all_seen = reached([self._loss], lambda thing: id(thing) in ids)
            known = {id(thing) for thing in found}
            self._things = {
                f"what is tracked as {name!r}": thing
                for name, thing in self._tracked.items()
                if not all_seen or id(thing) in known
            }

    def now(self) -> dict[str, Any]:
        """What is read, by what to call it."""
        names = [name for name in sorted(self._names) if name in self._kept]
        values = {f"run.state.{name}": getattr(self._kept, name) for name in names}
        return values | self._things
