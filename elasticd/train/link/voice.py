"""What a trainer says to its daemon, and what of it is said again to a daemon that was restarted.

A frame that the old daemon had not read yet died with it. So whatever still matters is kept and
repeated behind ``here``, the first word to the new one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from elasticd.ipc.child import Resume
from elasticd.types import Tag

_KEPT_REPORTS = 4
"""Shards of this many states are told again; older ones are of no use any more."""
_LEAVES = ("reducer_lost", "oom", "refused")
"""Ways of leaving a world that the leader must hear of."""


class Link(Protocol):
    """What carries it: a DaemonLink."""

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> bool: ...


class Voice:
    """Any thread may :meth:`send`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._fingerprint: Any = None
        self._waiting = self._judged = self._released = self._used = False
        self._serial = 0
        self._entered: Tag | None = None
        self._given: Tag | None = None
        self._gone: Mapping[str, Any] | None = None
        self._probe: Mapping[str, Any] | None = None
        self._finished: Mapping[str, Any] | None = None
        self._digest: Mapping[str, Any] | None = None
        self._shards: deque[Mapping[str, Any]] = deque(maxlen=_KEPT_REPORTS)

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Say it, and keep it if it is to be repeated; nothing is sent if the daemon has gone."""
        with self._lock:
            self._keep(message)
            self._link.send(message, fds)

    def _keep(self, message: Mapping[str, Any]) -> None:
        match message["t"]:
            case "waiting":
                self._waiting = True
            case "at_run":
                self._fingerprint = message["fingerprint"]
            case "loaded":
                self._entered = self._given
            case "probe":
                self._probe, self._judged = message, False
            case "finished":
                self._finished = message
            case "digest":
                self._digest = message
            case "shards":
                self._shards.append(message)
            case kind if kind in _LEAVES or message.get("policy") == "restore":
                self._gone = message

    def given(self, generation: Tag, holds_state: bool) -> None:
        """The daemon gave us a world, for which the state is in place or will be brought."""
        with self._lock:
            self._given, self._used = generation, True
            self._gone = self._finished = None
            if holds_state:
                self._entered = generation

    def frozen(self) -> None:
        """The daemon made us leave our world."""
        with self._lock:
            self._given = self._gone = self._finished = None

    def asked(self, serial: int) -> None:
        """The daemon has given an order with this number; it shall not be given again."""
        with self._lock:
            self._serial = max(self._serial, serial)

    def judged(self) -> None:
        """A verdict over our probe has come."""
        with self._lock:
            self._probe, self._judged = None, True

    def released(self) -> None:
        """We may leave the loop."""
        with self._lock:
            self._released = True

    def introduce(self, resume: Resume, progress: Mapping[str, Any] | None) -> None:
        """Tell a daemon that was restarted how we are."""
        with self._lock:
            here = {
                "t": "here",
                "fingerprint": self._fingerprint,
                "waiting": self._waiting,
                "generation": self._given and tag_list(self._given),
                "entered": self._entered and tag_list(self._entered),
                "used": self._used,
                "serial": self._serial,
                "judged": self._judged,
                "released": self._released,
            }
            repeated = (progress, self._probe, *self._shards, self._digest, self._finished)
            resume([here, *(m for m in (*repeated, self._gone) if m is not None)])


def tag_list(tag: Tag) -> list[Any]:
    return [tag.counter, tag.leader, tag.nonce]
