"""What a daemon is asked on its control socket, and its small answers (docs/protocols.md §3).

A client may be older or newer than the daemon, so the names on the wire stay as they are. What
describes the cluster, its events and its checkpoints is for people and scripts: those answers are
plain maps that shell/control makes, and no words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from elasticd.core.words.codec import Words
from elasticd.preflight.needs import JobNeeds, ScriptOffer
from elasticd.types import JobId, NodeId

StruckProcess = Literal["trainer", "reducer", "node"]
"""Of a rank; a node is its daemon and all that it has started."""
StrikeKind = Literal["kill", "hang", "oom", "slow"]
CutKind = Literal["link", "partition"]
CutHow = Literal["drop", "close", "one-way"]

# --- looking --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShowStatus:
    """Of the cluster with one job, or with all."""

    kind: ClassVar = "status"
    job: JobId | None = None
    ended: int | None = None
    """Of the ended jobs only so many, those that ended last; None: all."""
    parts: bool | None = None
    """The answer may come in several frames: before the last one come some of the jobs, with
    ``more``."""
    settings: bool | None = None
    """With what the job's job.toml says, where one job is asked for."""


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


@dataclass(frozen=True, slots=True)
class ReadEvents:
    """Of one job or all; with ``follow`` those to come too."""

    kind: ClassVar = "events"
    job: JobId | None = None
    follow: bool = False


@dataclass(frozen=True, slots=True)
class ReadLosses:
    """The loss of a job by step, as far as the daemon that is asked has heard it."""

    kind: ClassVar = "losses"
    job: JobId


@dataclass(frozen=True, slots=True)
class OpenOutputs:
    """The files in main's output folder, one after the other."""

    kind: ClassVar = "outputs"
    job: JobId


@dataclass(frozen=True, slots=True)
class ShowDisk:
    """What takes the space in the home of the daemon that is asked."""

    kind: ClassVar = "disk"


@dataclass(frozen=True, slots=True)
class TryNotices:
    """Do what ``[notify]`` of the daemon that is asked says, as a test."""

    kind: ClassVar = "try_notices"
    event: str | None = None
    """As ``[notify]`` names it; None: on each that it names."""


@dataclass(frozen=True, slots=True)
class RunPreflight:
    """Look at all nodes as before a job. How far it is follows, as :class:`PreflightTold`, and then
    the report, as a plain map. It ends when the client hangs up."""

    kind: ClassVar = "preflight"
    last: bool | None = None
    """The report that is stored on the daemon that is asked, and nothing is done."""
    only: Literal["links", "speed"] | None = None
    busy: bool | None = None
    """Measure also where a job has processes."""
    job: JobNeeds | None = None
    """Look also at what this one needs. An earlier version knows no such thing, and its report says
    nothing of a job."""
    seconds: float | None = None
    """For so long each node computes, where speeds alone are measured."""
    script: ScriptOffer | None = None
    """Make the first step of ``job`` on each node, too. Its files follow as :class:`ArchivePart`,
    once they are asked for; an earlier version does not."""


# --- changing -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NameJob:
    """An id for a job that is about to be submitted. It promises nothing."""

    kind: ClassVar = "name_job"
    name: str


@dataclass(frozen=True, slots=True)
class SubmitJob:
    """Its folder follows as :class:`ArchivePart`."""

    kind: ClassVar = "submit"
    spec: dict[str, Any]
    archive_bytes: int
    archive_digest: str
    id: JobId | None = None
    """The client's id for it: said again, on any node, it is the same job."""


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """Follows a :class:`SubmitJob` until all bytes are there. It has no name on the wire."""

    data: bytes


@dataclass(frozen=True, slots=True)
class CancelJob:
    kind: ClassVar = "cancel"
    job: JobId


@dataclass(frozen=True, slots=True)
class ForgetJob:
    """One that has ended, with all its files on all nodes."""

    kind: ClassVar = "forget"
    job: JobId


@dataclass(frozen=True, slots=True)
class PauseJob:
    kind: ClassVar = "pause"
    job: JobId


@dataclass(frozen=True, slots=True)
class ResumeJob:
    kind: ClassVar = "resume"
    job: JobId


@dataclass(frozen=True, slots=True)
class RetryJob:
    """Try nodes again that the job goes on without."""

    kind: ClassVar = "retry"
    job: JobId
    memory: bool = False
    """Try also to do without what was given up for want of memory."""


@dataclass(frozen=True, slots=True)
class DrainNode:
    kind: ClassVar = "drain"
    node: NodeId


@dataclass(frozen=True, slots=True)
class UndrainNode:
    kind: ClassVar = "undrain"
    node: NodeId


@dataclass(frozen=True, slots=True)
class ForgetNode:
    """One that is gone for good."""

    kind: ClassVar = "forget_node"
    node: NodeId


@dataclass(frozen=True, slots=True)
class ShutDown:
    """End the daemon and its children, in order."""

    kind: ClassVar = "shutdown"


@dataclass(frozen=True, slots=True)
class Restart:
    """End the daemon and its children, in order, and have the same process begin anew: with the
    settings and papers that are there then."""

    kind: ClassVar = "restart"


# --- checkpoints ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListCheckpoints:
    kind: ClassVar = "checkpoints"
    job: JobId


@dataclass(frozen=True, slots=True)
class VerifyCheckpoints:
    """All, or that of ``step``."""

    kind: ClassVar = "checkpoints_verify"
    job: JobId
    step: int | None = None


@dataclass(frozen=True, slots=True)
class OpenCheckpoint:
    """The newest consistent one, or that of ``step``, or of ``lineage``."""

    kind: ClassVar = "checkpoints_open"
    job: JobId
    step: int | None = None
    lineage: str | None = None
    """As :class:`ListCheckpoints` tells it. An earlier version takes the newest of all."""


@dataclass(frozen=True, slots=True)
class PruneCheckpoints:
    """What is kept is said here, else by the job."""

    kind: ClassVar = "checkpoints_prune"
    job: JobId
    keep: int | None = None
    keep_every_steps: int | None = None
    keep_hours: float | None = None
    dry_run: bool = False


# --- chaos ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StrikeRank:
    """Hurt a rank's process, for some seconds or, with 0, for ever."""

    kind: ClassVar = "chaos"
    what: StrikeKind
    job: JobId
    rank: int
    process: StruckProcess = "trainer"
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CutLinks:
    """Between groups of nodes."""

    kind: ClassVar = "chaos"
    what: CutKind
    groups: tuple[tuple[NodeId, ...], ...]
    seconds: float
    how: CutHow = "drop"


@dataclass(frozen=True, slots=True)
class PutOutNode:
    """Take its certificate no more, on any node."""

    kind: ClassVar = "put_out_node"
    node: NodeId


@dataclass(frozen=True, slots=True)
class RotateCertificates:
    """Have all members get new keys and certificates, and take the old ones no more; a rotation
    that is under way goes on. How far it is follows, as :class:`RotationTold`, until old ones are
    refused. It does not end with the client."""

    kind: ClassVar = "rotate"


ChangeOfJob = CancelJob | ForgetJob | PauseJob | ResumeJob
ChangeOfNode = DrainNode | UndrainNode | ForgetNode | PutOutNode

Request = (
    ShowStatus
    | ShowDisk
    | TryNotices
    | RunPreflight
    | ReadLosses
    | ReadLogs
    | ReadEvents
    | OpenOutputs
    | NameJob
    | SubmitJob
    | ChangeOfJob
    | RetryJob
    | ChangeOfNode
    | RotateCertificates
    | ShutDown
    | Restart
    | ListCheckpoints
    | VerifyCheckpoints
    | OpenCheckpoint
    | PruneCheckpoints
    | StrikeRank
    | CutLinks
)

# --- answers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobNamed:
    id: JobId


@dataclass(frozen=True, slots=True)
class Submitted:
    id: JobId
    warning: str = ""
    """Why it can't run now, if it can't."""
    short: str = ""
    """Which nodes have its files, if they are fewer than there should be."""


@dataclass(frozen=True, slots=True)
class JobChanged:
    id: JobId
    state: str
    """As people are told; that it is paused is no state of its record."""
    already: bool = False
    """It was to be cancelled, and had ended before: nothing has changed."""


@dataclass(frozen=True, slots=True)
class JobRetried:
    id: JobId
    nodes: tuple[NodeId, ...]
    """Those that are tried again."""
    relief: int = 0
    """The level of relief that is given back; 0: none is."""


@dataclass(frozen=True, slots=True)
class NodeChanged:
    id: NodeId
    state: str


@dataclass(frozen=True, slots=True)
class Failed:
    """``code`` is the command's exit status."""

    error: str
    code: int = 1


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """Behind the last frame of a stream."""

    end: bool = True


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


@dataclass(frozen=True, slots=True)
class RankStruck:
    """What was done to which process; ``pid`` 0 is a whole node."""

    what: StrikeKind
    process: StruckProcess
    node: NodeId
    pid: int
    seconds: float
    job: JobId
    rank: int


@dataclass(frozen=True, slots=True)
class LinksCut:
    what: CutKind
    groups: tuple[tuple[NodeId, ...], ...]
    how: CutHow
    seconds: float


@dataclass(frozen=True, slots=True)
class RotationTold:
    """How far a rotation is, by node: who has its new certificate, who is there and hasn't, who is
    away and gets it when it is back."""

    wanted_unix: float
    """Certificates that were made by then are old."""
    renewed: tuple[NodeId, ...]
    waiting: tuple[NodeId, ...]
    away: tuple[NodeId, ...]
    refused: bool
    """Old certificates are taken no more."""


@dataclass(frozen=True, slots=True)
class PreflightTold:
    """What is being looked at."""

    doing: str
    send: bool = False
    """The files of the script that was offered are to be sent now."""


Outcome = Submitted | JobChanged | JobRetried | NodeChanged | Failed
"""What the control plane says to a request that changes something."""

Answer = (
    Outcome
    | JobNamed
    | StreamEnded
    | LogText
    | LogBytes
    | LogCut
    | LogUnread
    | RankStruck
    | LinksCut
    | RotationTold
    | PreflightTold
)

REQUESTS: Words[Request] = Words(Request, key="do", terse=True)
