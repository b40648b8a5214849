"""What ranks have printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elasticd.types import JobId, NodeId


@dataclass(frozen=True, slots=True)
class ReadLogs:
    """What a job's ranks printed so far, as :class:`LogText`, with ``follow`` until the job has
    ended. :class:`LogCut` where something is left out; at the end :class:`LogUnread` for each node
    whose log could not be read."""

    kind: ClassVar = "logs"
    job: JobId
    rank: int | None = None
    follow: bool = False
    tail: int | None = None
    """Of what there is already only so many lines of each node."""
    since: float | None = None
    """Only what was printed after this Unix time."""
    raw: bool | None = None
    """As :class:`LogBytes`."""
    past: dict[str, int] | None = None
    """What of the nodes' logs was shown before, by another daemon: the last ``at`` of each. Empty
    where nothing was. Without it no ``at`` is said."""
    node: NodeId | None = None
    """Only of this node, whatever ranks it had."""


@dataclass(frozen=True, slots=True)
class LogText:
    rank: int | None
    """None: the node has none now."""
    node: NodeId
    text: str
    at: int | None = None
    """Up to where in the node's log all has been told; what is told next begins there."""


@dataclass(frozen=True, slots=True)
class LogBytes:
    """As they were printed."""

    rank: int | None
    node: NodeId
    data: bytes
    at: int | None = None
    """As of :class:`LogText`."""


@dataclass(frozen=True, slots=True)
class LogCut:
    """Before what follows of a node's log: something that was asked for is left out."""

    rank: int | None
    node: NodeId
    left_out: str
    """What and why."""


@dataclass(frozen=True, slots=True)
class LogUnread:
    """The last word of a node's log: it has more than was shown, or may have."""

    rank: int | None
    node: NodeId
    unread: str
    """Why it could not be read."""
