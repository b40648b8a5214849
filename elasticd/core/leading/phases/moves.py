"""What follows from what a phase has heard: another phase, faults, or the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.core.words.records import JobState, World
from elasticd.types import NO_SECRET, Confidence, NodeId, Secret, Sign


@dataclass(frozen=True, slots=True)
class ToWaiting:
    why: str


@dataclass(frozen=True, slots=True)
class ToFreezing:
    """Ask ``nodes`` what they hold, to form the next world."""

    nodes: tuple[NodeId, ...]
    cause: str = ""
    """Why a world is left that nothing has broken."""


@dataclass(frozen=True, slots=True)
class ToForming:
    world: World
    secret: Secret = field(default=NO_SECRET, repr=False)
    """As in :class:`Form`."""


@dataclass(frozen=True, slots=True)
class ToRunning:
    """Every member is in the world."""


@dataclass(frozen=True, slots=True)
class ToClosing:
    """The last step is committed."""


@dataclass(frozen=True, slots=True)
class Blame:
    """Evidence that speaks against a node."""

    culprit: NodeId
    fault: Sign
    text: str
    seen_at: float | None = None
    """When the first sign was seen; None: now."""
    exited: bool = False
    """The culprit's trainer has ended."""
    confidence: Confidence = ""

    @property
    def ended(self) -> bool:
        """Whether the culprit's trainer has ended, with its daemon or alone."""
        return self.exited or self.fault in ("worker_exit", "peer_lost")


@dataclass(frozen=True, slots=True)
class Blames:
    """Take these in, and leave a world that one of them breaks."""

    all: tuple[Blame, ...]


@dataclass(frozen=True, slots=True)
class Oriented:
    """An earlier leader has left no world."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """A world that an earlier leader has left broken, unfinished, or about to end."""

    blames: tuple[Blame, ...] = ()
    otherwise: Blame | None = None
    """What speaks against it if none of these does."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the job has ended; the node writes it into the job's record."""

    state: JobState
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rest:
    """A paused job at rest: nothing of it runs, and its state is stored. The node writes it into
    the job's record."""

    step: int
    generation: str = ""


Move = ToWaiting | ToFreezing | ToForming | ToRunning | ToClosing | Oriented | Inherited
Next = Move | Blames | Outcome | Rest
"""What the driver has to carry out."""
