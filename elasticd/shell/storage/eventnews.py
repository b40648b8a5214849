"""Which events came as they happened. No clock says so: that of their node may be wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.shell.storage.eventform import Event, key_of


@dataclass(slots=True)
class _Met:
    """The daemon of a node that has connected."""

    origin: str
    had: int | None
    """So many events, when it was met; None: it hasn't said yet. It sends the next ones at once."""


@dataclass(slots=True)
class EventNews:
    """``own``: the origin of this daemon's events."""

    own: str
    _met: dict[str, _Met] = field(default_factory=dict)

    def meets(self, node: str, boot: str) -> None:
        """A daemon has connected. What it has made while it was away is no news."""
        self._met[node] = _Met(f"{node}/{boot}", None)

    def heard(self, node: str, vector: Mapping[str, int]) -> None:
        """It says which events it has, first of all."""
        met = self._met.get(node)
        if met is not None and met.had is None:
            met.had = vector.get(met.origin, 0)

    def has(self, event: Event) -> bool:
        """Whether that is one."""
        origin, number = key_of(event)
        met = self._met.get(origin.rpartition("/")[0])
        if met is None or met.origin != origin:
            return origin == self.own
        return met.had is not None and number > met.had
