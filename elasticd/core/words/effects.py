"""What the control plane wants done, and what the world tells it.

Effects are performed in list order; their results come back as events. A :class:`Persist` is
durable before any later effect of the same list is performed, so "persist before send" is visible
in the order. The node speaks in messages (:class:`Send`, :class:`Received`); the shell carries the
frames that core/endpoint.py makes of them (:class:`Transmit`, :class:`Arrived`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.core.words.engines import EngineEffect, EngineEvent, EngineOrder
from elasticd.core.words.frames import Frame
from elasticd.core.words.messages import Message
from elasticd.core.words.records import JobRecord, Path, Wanted, World
from elasticd.core.words.reducers import FromReducer
from elasticd.core.words.requests.every import Outcome
from elasticd.core.words.shards import ShardsWritten
from elasticd.core.words.trainers import FromTrainer, ToTrainer
from elasticd.recovery.signatures import LastMemory
from elasticd.types import JobId, Lineage, NodeId, Role, Stamp, Tag

ChildId = int
FromChild = FromTrainer | FromReducer

# --- effects ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    to: NodeId
    message: Message


@dataclass(frozen=True, slots=True)
class Transmit:
    """Put a frame on the connection to a node; it may be lost, and is dropped if there is none."""

    to: NodeId
    frame: Frame


@dataclass(frozen=True, slots=True)
class Persist:
    """Append to the journal; the kinds are those of elasticd.core.recall."""

    kind: str
    record: Any


@dataclass(frozen=True, slots=True)
class Reached:
    """Note, without waiting for the disk, that a world has committed a step: after the death of
    everybody who knew, it says how many steps were lost."""

    job: JobId
    generation: Tag
    step: int


@dataclass(frozen=True, slots=True)
class Emit:
    """Write an event into the replicated history."""

    job: JobId | None
    kind: str
    reason: str
    generation: int | None
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Log:
    level: Literal["debug", "info", "warning", "error"]
    text: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StartTrainer:
    child: ChildId
    job: JobId
    spare: bool


@dataclass(frozen=True, slots=True)
class StartReducer:
    child: ChildId


@dataclass(frozen=True, slots=True)
class KillChild:
    """SIGKILL at once; ``graceful`` sends SIGTERM first."""

    child: ChildId
    reason: str
    graceful: bool = False
    dump: bool = False
    """Let a trainer print the stacks of its threads first."""


@dataclass(frozen=True, slots=True)
class TellTrainer:
    child: ChildId
    message: ToTrainer


@dataclass(frozen=True, slots=True)
class EnterWorld:
    """Give the trainer its world; with a reducer also chunk memory, and a socket between both."""

    trainer: ChildId
    reducer: ChildId | None
    world: World
    rank: int


@dataclass(frozen=True, slots=True)
class FormReducer:
    """Give a warm reducer its rank in the world's group, in its backend's words."""

    reducer: ChildId
    world: World
    rank: int
    order: EngineOrder


@dataclass(frozen=True, slots=True)
class FetchState:
    """Bring the resume state to the trainer: from living peers as ``wanted`` says, or, without it,
    from the checkpoint in the world. ``careful``: what is on disk is not to be trusted, since the
    trainer found a byte of it wrong."""

    trainer: ChildId
    world: World
    wanted: Wanted | None
    careful: bool = False


@dataclass(frozen=True, slots=True)
class PrepareState:
    """Bring a state to a trainer that is in no world yet, once; ``serial`` tells orders apart."""

    trainer: ChildId
    job: JobId
    generation: Tag
    wanted: Wanted
    serial: int


@dataclass(frozen=True, slots=True)
class EnsureArchive:
    job: JobRecord


@dataclass(frozen=True, slots=True)
class CommitManifest:
    job: JobId
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class PruneStore:
    """Remove what the job's retention does not keep, up to a checkpoint that is consistent."""

    job: JobId
    lineage: Lineage
    step: int


@dataclass(frozen=True, slots=True)
class FetchShards:
    """Pull shards from peers into the local store: see messages.PullShards."""

    job: JobId
    step: int
    stamp: Stamp
    count: int
    shards: tuple[tuple[int, int, str], ...]
    sources: tuple[tuple[NodeId, ...], ...]
    report: ShardsWritten


@dataclass(frozen=True, slots=True)
class Reply:
    request: int
    body: Outcome


LocalEffect = (
    Persist
    | Emit
    | Log
    | StartTrainer
    | StartReducer
    | KillChild
    | EngineEffect
    | TellTrainer
    | EnterWorld
    | FormReducer
    | FetchState
    | PrepareState
    | EnsureArchive
    | CommitManifest
    | PruneStore
    | FetchShards
    | Reached
    | Reply
)
Effect = Send | LocalEffect
"""What a node asks for."""
Outward = Transmit | LocalEffect
"""What a shell performs."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A child that the daemon before this one left running. It says ``here`` or ends: an event."""

    child: ChildId
    role: Role
    job: JobId | None
    spare: bool
    pid: int


# --- events -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PeerUp:
    """There is a connection, in both directions. ``session`` rises when messages to or from that
    run of its daemon were given up; a shell leaves it at 0."""

    node: NodeId
    boot: str
    address: str
    session: int = 0


@dataclass(frozen=True, slots=True)
class PeerDown:
    node: NodeId
    boot: str
    reason: str


@dataclass(frozen=True, slots=True)
class Paths:
    """How the addresses of a node are now. Of this one, if there are any: those that it has."""

    node: NodeId
    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Received:
    node: NodeId
    message: Message


@dataclass(frozen=True, slots=True)
class Arrived:
    """A frame came on a connection with a node that is up."""

    node: NodeId
    frame: Frame


@dataclass(frozen=True, slots=True)
class Tick:
    pass


@dataclass(frozen=True, slots=True)
class Leave:
    """This node shall leave the view, as a daemon that is being stopped does; ``reason`` goes to
    the others. It follows no view until :class:`Stay`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stay:
    """A node that left shall be let in again."""


@dataclass(frozen=True, slots=True)
class Submit:
    request: int
    record: JobRecord


@dataclass(frozen=True, slots=True)
class Cancel:
    request: int
    job: JobId


@dataclass(frozen=True, slots=True)
class Forget:
    """Show and keep nothing of an ended job any more."""

    request: int
    job: JobId


@dataclass(frozen=True, slots=True)
class Discard:
    """What ``[keep]`` in elasticd.toml keeps no longer: forget these jobs if they have ended."""

    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause a job, or resume it."""

    request: int
    job: JobId
    paused: bool


@dataclass(frozen=True, slots=True)
class Retry:
    """Try nodes again that a job goes on without; with ``memory`` also to do without relief."""

    request: int
    job: JobId
    memory: bool = False


@dataclass(frozen=True, slots=True)
class Drain:
    """Drain a node, or let it take part again; ``out``: let who has its name next do so."""

    request: int
    node: NodeId
    draining: bool
    out: bool = False


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Take a node that is gone for good off the list."""

    request: int
    node: NodeId


@dataclass(frozen=True, slots=True)
class Depart:
    """The daemon is about to be stopped: let its ranks leave at a step boundary."""


@dataclass(frozen=True, slots=True)
class ChildStarted:
    child: ChildId
    pid: int


@dataclass(frozen=True, slots=True)
class ReducerReady:
    """A spare reducer is warm; ``host`` is the address and port that it would listen on."""

    child: ChildId
    host: str
    proves: bool = False
    """As in :class:`ReducerWarm`."""
    walks: bool = False
    """As there."""
    chains: bool = False
    """As there."""


@dataclass(frozen=True, slots=True)
class ChildSaid:
    child: ChildId
    message: FromChild


@dataclass(frozen=True, slots=True)
class ChildExited:
    """``status``: exit code, or minus the signal; None: not known, as another daemon started it.
    ``tail``: its last lines. ``before``: it was about to end, or had ended, when its end was asked
    for. ``late_seconds``: it was ended since it was not up within so long."""

    child: ChildId
    status: int | None
    tail: str
    memory: LastMemory | None = None
    before: bool = False
    late_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ChildStopped:
    """A child that lives has been stopped (SIGSTOP) for ``seconds``."""

    child: ChildId
    seconds: float


OfChild = ChildStarted | ChildSaid | ChildExited | ChildStopped
"""What a child of ours does."""


@dataclass(frozen=True, slots=True)
class MemoryPressure:
    """This machine is about to run out of memory: ``left_bytes`` can still be had. Said again
    while that lasts. ``mild``: the system only warns, and may do so for hours."""

    reason: str
    left_bytes: int
    mild: bool = False


@dataclass(frozen=True, slots=True)
class PrepareFailed:
    """A :class:`PrepareState` came to nothing."""

    job: JobId
    generation: Tag
    serial: int
    reason: str


@dataclass(frozen=True, slots=True)
class StateFailed:
    job: JobId
    generation: Tag
    reason: str


@dataclass(frozen=True, slots=True)
class ArchiveReady:
    job: JobId
    ok: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ManifestKept:
    job: JobId
    lineage: Lineage
    step: int
    stamp: Stamp
    count: int
    ok: bool
    reason: str
    stored: tuple[Stored, ...]
    refused: bool = False
    lacks: bool = False
    """Both as in :class:`ManifestStored`."""


@dataclass(frozen=True, slots=True)
class ShardsFetched:
    report: ShardsWritten
    ok: bool
    reason: str
    stored: tuple[Stored, ...]
    refused: bool = False
    rotten: tuple[tuple[int, NodeId], ...] = ()
    """Both as in :class:`ShardsFailed`."""


@dataclass(frozen=True, slots=True)
class StoreChanged:
    """Final checkpoints were removed here, or repaired, by somebody else than the leader."""

    job: JobId
    stored: tuple[Stored, ...]


@dataclass(frozen=True, slots=True)
class SpeedsMeasured:
    """What a grain takes by the nodes' speeds that were measured before; the fastest: 1."""

    job: JobId
    seconds: dict[NodeId, float]
    reason: str


OfJobs = Submit | Cancel | Forget | Discard | Pause | Retry
"""What is asked of jobs."""
ToNode = (
    Paths | Received | Leave | Stay | OfJobs | Drain | Dismiss | Depart
    | ChildStarted | ReducerReady | EngineEvent | ChildSaid | ChildExited | ChildStopped
    | MemoryPressure | StateFailed | PrepareFailed
    | ArchiveReady | ManifestKept | ShardsFetched | StoreChanged | SpeedsMeasured
)  # fmt: skip
"""What is for the node alone, whatever becomes of connections."""
Event = PeerUp | PeerDown | Tick | ToNode
"""What a node takes in."""
Inward = Arrived | Event
"""What a shell tells."""
