"""What a node remembers across restarts, from its journal and its disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.checkpoints.manifest import Stored
from elasticd.core.words.effects import Leftover, Reached
from elasticd.core.words.records import Heard, JobRecord, NodeRecord, View, World
from elasticd.types import JobId, Tag


@dataclass(frozen=True, slots=True)
class Stable:
    """From its journal."""

    counter: int = 0
    promised: Tag | None = None
    records: tuple[JobRecord, ...] = ()
    born: Tag | None = None
    """The first view that was ever promised."""
    formed: View | None = None
    """The newest primary view (``partition = "strict"``) that is known to have formed."""
    attempts: tuple[View, ...] = ()
    """Later ones that were attempted."""
    worlds: tuple[World, ...] = ()
    """Of each job the newest world that the node was a member of."""
    heard: tuple[Heard, ...] = ()
    """Of worlds, in them or not."""
    nodes: tuple[NodeRecord, ...] = ()
    lost: bool = False
    """Its journal was lost, and no primary view was formed with it since."""
    since: tuple[Tag, ...] = ()
    """If so: what it has promised since."""
    reached: tuple[Reached, ...] = ()
    """Of each job the newest step that was committed here, as far as the disk has it."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a daemon finds when it starts."""

    stable: Stable = Stable()
    stored: Mapping[JobId, tuple[Stored, ...]] = field(default_factory=dict)
    """Of each job the checkpoints on the disk."""
    leftovers: tuple[Leftover, ...] = ()
    """Children that outlived the daemon before this one. Their numbers are taken."""
