"""What daemons say to find out who lives, and to agree on a view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticd.core.words.records import Heard, View
from elasticd.recovery.quorum import History
from elasticd.types import NodeId, Tag


@dataclass(frozen=True, slots=True)
class Heartbeat:
    epoch: Tag
    counter: int
    primary: bool = True
    """Whether the view that the sender follows may train."""
    asks: bool = True
    """The sender listens to the receiver: it wants heartbeats, too."""


@dataclass(frozen=True, slots=True)
class Missing:
    """The sender, which listens to that run of a node's daemon, has heard nothing for too long
    (core/membership/circle.py)."""

    node: NodeId
    boot: str
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class Probe:
    """Do you hear this node? Asked of a third node when we don't."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class Vouch:
    """Answer to :class:`Probe`: how long ago that run of its daemon was heard; None: not lately."""

    node: NodeId
    boot: str
    age_seconds: float | None


@dataclass(frozen=True, slots=True)
class Carry:
    """A frame between two other nodes, or on its last leg; ``deaf``: ``source`` does not hear
    ``target`` directly."""

    source: NodeId
    target: NodeId
    deaf: bool
    frame: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Obituary:
    """The sender has a second witness against a node whose connection closed."""

    node: NodeId
    why: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """The sender goes, on purpose: go on without it at once. A heartbeat of its takes that back."""

    reason: str


@dataclass(frozen=True, slots=True)
class ViewPropose:
    view: View


@dataclass(frozen=True, slots=True)
class ViewAck:
    """The view is promised; if ``attempted`` also journalled as attempted. ``history`` is what
    counts when at most one view may train."""

    epoch: Tag
    attempted: bool
    history: History
    heard: tuple[Heard, ...]


@dataclass(frozen=True, slots=True)
class ViewNack:
    epoch: Tag
    counter: int


@dataclass(frozen=True, slots=True)
class ViewForm:
    view: View


OfLinks = Probe | Vouch | Carry
"""What goes by third nodes, or asks them."""

OfViews = Heartbeat | Missing | Obituary | Leaving | ViewPropose | ViewAck | ViewNack | ViewForm
