"""What a daemon fetches from another on a connection of its own (docs/protocols.md §4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from elasticd.checkpoints.questions import Question, WantShard
from elasticd.core.words.codec import Words
from elasticd.core.words.requests.chaos import CutHow, StrikeKind, StruckProcess
from elasticd.preflight.needs import JobNeeds
from elasticd.types import JobId, NodeId, ShardCount, Stamp


@dataclass(frozen=True, slots=True)
class WantState:
    """Of a trainer: the updates after ``since`` if it has those, else a part of the state."""

    kind: ClassVar = "state"
    job: JobId
    step: int
    stamp: Stamp
    since: Stamp | None = None
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, slots=True)
class DoubtShard:
    """Brings nothing: a shard that came was rotten, and its holder is to read it again."""

    kind: ClassVar = "doubt"
    job: JobId
    step: int
    stamp: Stamp
    index: int
    count: ShardCount


@dataclass(frozen=True, slots=True)
class WantLog:
    """What the job's ranks printed there from ``offset`` on. ``counted``: that counts what was
    removed since, too, and there is nothing at it if it is of that."""

    kind: ClassVar = "log"
    job: JobId
    offset: int
    counted: bool = False


@dataclass(frozen=True, slots=True)
class WantLogStart:
    """The offset, in digits, of the first byte that may have been printed there after ``since``."""

    kind: ClassVar = "log_start"
    job: JobId
    since: float
    counted: bool = False
    span: bool = False
    """After it the offset of the end, and on a second line what is left out."""
    tail: int | None = None
    """With ``span``: of what there is only so many lines."""
    marks: bool = False
    """With ``span``: and how long it was when, behind a zero byte."""


@dataclass(frozen=True, slots=True)
class WantArchive:
    kind: ClassVar = "archive"
    digest: str


@dataclass(frozen=True, slots=True)
class KeepArchive:
    """Brings nothing: once it is answered the archive is on the disk of who was asked, which
    fetches it from ``source`` if it has it not."""

    kind: ClassVar = "keep_archive"
    digest: str
    source: NodeId


@dataclass(frozen=True, slots=True)
class WantArchiveList:
    """The digests of the archives that are there, a line each; none is read for that."""

    kind: ClassVar = "archive_list"


@dataclass(frozen=True, slots=True)
class WantOutputList:
    """Which files there are in the node's output folder of a job, or in its copy of main's.

    ``limit_bytes``: those that fit in so much, for whoever keeps a copy; None: all. ``steps``: with
    the steps that those of ``run.open`` have.
    """

    kind: ClassVar = "output_list"
    job: JobId
    copy: bool = False
    limit_bytes: int | None = None
    steps: bool = False


@dataclass(frozen=True, slots=True)
class WantOutput:
    """One of those files."""

    kind: ClassVar = "output"
    job: JobId
    name: str
    copy: bool = False


@dataclass(frozen=True, slots=True)
class WantOutputIndex:
    """Which steps of a file of ``run.open`` have written how much of it, as it lies there: the
    library's own file, which is none of the others."""

    kind: ClassVar = "output_index"
    job: JobId
    name: str


@dataclass(frozen=True, slots=True)
class CopyOutput:
    """Brings nothing: main's script wants what it has written to be on other nodes. Who is asked
    begins to copy it, and answers at once."""

    kind: ClassVar = "copy_output"
    job: JobId


@dataclass(frozen=True, slots=True)
class WantBlank:
    """Bytes that mean nothing, to measure an address."""

    kind: ClassVar = "blank"


@dataclass(frozen=True, slots=True)
class WantFacts:
    """What the node says of itself before a job runs, as JSON (preflight/seen.py)."""

    kind: ClassVar = "facts"


@dataclass(frozen=True, slots=True)
class WantJobFacts:
    """What the node has of what a job needs, as JSON (preflight/needs.py)."""

    kind: ClassVar = "job_facts"
    needs: JobNeeds


@dataclass(frozen=True, slots=True)
class WantSpeed:
    """How fast the node computes, as JSON (preflight/speeds.py): measured for so many seconds, or
    as it was in the last ``fresh_seconds``; while a job has processes there as it ever was.
    ``busy``: measured also then."""

    kind: ClassVar = "speed"
    seconds: float
    busy: bool = False
    fresh_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class WantFirstStep:
    """What the first step of a job comes to on the node, as JSON (preflight/firststeps.py). Its
    files are the archive ``digest``, which some node has. ``needs_bytes``: of memory at least.
    ``busy``: also while a job has processes there."""

    kind: ClassVar = "first_step"
    spec: dict[str, Any]
    digest: str
    needs_bytes: int = 0
    busy: bool = False


@dataclass(frozen=True, slots=True)
class WantLinks:
    """How the node reaches ``peer`` at each of its addresses, measured now, as JSON. ``busy``: also
    while a job has processes at one end."""

    kind: ClassVar = "links"
    peer: NodeId
    busy: bool = False


@dataclass(frozen=True, slots=True)
class WantDoor:
    """The port of ``host`` at which the node listens for a moment, as JSON, for one caller who has
    the word."""

    kind: ClassVar = "door"
    host: str
    word: str
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Blow:
    """What to do to which process. ``pid`` is the rank's trainer or reducer, 0 for a node."""

    what: StrikeKind
    process: StruckProcess
    node: NodeId
    pid: int
    seconds: float
    """How long it lasts, for what passes: 0 means for ever."""


@dataclass(frozen=True, slots=True)
class CutOrder:
    """That ``node`` cuts its links with the nodes ``from_``."""

    node: NodeId
    from_: tuple[NodeId, ...]
    how: CutHow
    seconds: float


@dataclass(frozen=True, slots=True)
class CutHere:
    """Brings nothing, as :class:`StrikeHere`."""

    kind: ClassVar = "chaos"
    order: CutOrder


@dataclass(frozen=True, slots=True)
class StrikeHere:
    kind: ClassVar = "chaos"
    blow: Blow


@dataclass(frozen=True, slots=True)
class Relay:
    """What ``node`` has for ``request``, which a third node passes on as it is."""

    kind: ClassVar = "relay"
    node: NodeId
    request: dict[str, Any]


OfChaos = CutHere | StrikeHere
OfArchives = WantArchive | KeepArchive | WantArchiveList
OfStates = Question | WantShard | WantState | DoubtShard | WantLog | WantLogStart | OfArchives
OfOutputs = WantOutputList | WantOutput | WantOutputIndex | CopyOutput
OfLinks = WantLinks | WantDoor
OfPreflight = WantFacts | WantJobFacts | WantSpeed | WantFirstStep | OfLinks
Want = OfStates | OfOutputs | OfChaos | OfPreflight | WantBlank | Relay

WANTS: Words[Want] = Words(Want, key="what")
