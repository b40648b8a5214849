"""What a member and the leader of a view say to each other about one job's world."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from elasticd.checkpoints.manifest import Stored
from elasticd.core.words.engines import EngineToLeader, EngineToMember
from elasticd.core.words.records import Called, Heard, Path, TrainerStatus, Wanted, World
from elasticd.core.words.shards import (
    Consistent,
    Digest,
    Interval,
    ManifestStore,
    ManifestStored,
    PullShards,
    ShardsFailed,
    ShardsWritten,
)
from elasticd.types import (
    NO_SECRET,
    Confidence,
    JobId,
    NodeId,
    Point,
    ProofPart,
    Secret,
    Sign,
    Stamp,
    Tag,
    WorkPhase,
)


@dataclass(frozen=True, slots=True)
class Failing:
    """The job can't run on a node, as far as can be seen there: its script raises or ends too soon,
    or the job's state does not fit what it has built. The leader decides whether that is the node's
    doing or the script's."""

    reason: str
    looping: bool = False
    """In the loop's body, which others run at the same step."""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    epoch: Tag
    job: JobId
    trainer: TrainerStatus | None
    trouble: str
    hopeless: bool
    """No trainer comes up here, however often it is tried."""
    fatal: str
    """A failure of the script after its last step, or on all ranks: the job is over."""
    world: World | None
    """The newest that the node was a member of, whether or not its trainer is in it still."""
    formed: bool
    ready: bool
    """The trainer is in ``world`` with the right state and a ring, and nothing speaks against
    it."""
    faults: tuple[tuple[Sign, str], ...]
    """What speaks against the node in ``world``: (fault, evidence)."""
    committed: int
    warm: bool
    """A spare reducer is at hand: the next world does not wait for a process to start."""
    reducer_pid: int | None
    counter: int
    stored: tuple[Stored, ...]
    domain: str = ""
    """The node's failure domain."""
    hosts: tuple[str, ...] = ()
    """The node's own addresses, without ports, best first."""
    paths: tuple[Path, ...] = ()
    """How it reaches other nodes."""
    failing: Failing | None = None
    """Why nothing of the job is started here any more."""
    tried: int = 0
    """The node's turn (elasticd/recovery/fitness.py) in which what is told here was begun."""
    chip: str = ""
    """What it computes with; empty: not known."""

    def of_now(self) -> MemberStatus:
        """What is left of it when the node is tried again: a trainer that is in no world is begun
        anew."""
        trainer = self.trainer
        stays = trainer is not None and trainer.phase not in ("starting", "waiting", "ready")
        return replace(self, failing=None, trouble="", trainer=trainer if stays else None)


@dataclass(frozen=True, slots=True)
class Holding:
    """Answer to :class:`Freeze`: the generation is left, and this is what the node holds now."""

    epoch: Tag
    job: JobId
    serial: str
    able: bool
    """There is a trainer that can enter a world."""
    point: Point | None
    entered: Tag | None
    """The newest world in which this trainer has had the right state."""
    committed: int
    host: str
    counter: int
    gives: tuple[Stamp, ...] = ()
    """From these states on it has every update up to ``point``."""
    replays: bool = False
    """It can apply updates that others have made."""
    given: bool = False
    """Its trainer was given this state: it never ran the body of its step."""
    calls: tuple[Called, ...] = ()
    """What its trainer has of results of ``run.on_main``."""
    body: int = -1
    """In the body of which step its script is, or was last."""
    unproven: bool = False
    """Its trainer has yet to show that it computes what the others do."""
    ended: bool | None = None
    """The state is what the body of its step has left. None: an older build, which doesn't say."""
    proves: bool = False
    """The process at ``host`` can show others that it knows a world's secret."""
    walks: bool = False
    """It can make exact sums along the ring."""
    chains: bool = False
    """It can make fast sums along the ring."""
    on_cpu: bool = False
    """It has its trainer make updates on the CPU where a world says so. An older build doesn't."""


@dataclass(frozen=True, slots=True)
class Lent:
    """A trainer keeps the state of ``step`` for others, and the updates from there on; or
    ``reason`` says why not."""

    job: JobId
    generation: Tag
    step: int
    stamp: Stamp
    reason: str = ""
    never: bool = False
    """No other step would do: memory is short."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The sender's trainer, which is in no world, holds this state now; or ``reason`` says why
    not."""

    job: JobId
    generation: Tag
    point: Point | None
    reason: str = ""
    replays: bool = False
    """It can apply updates that others have made."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Reducer in the ring, trainer in the resume state."""

    job: JobId
    generation: Tag


@dataclass(frozen=True, slots=True)
class Fault:
    """One piece of evidence. ``culprit`` is the node that it speaks against, not always the
    sender."""

    job: JobId
    generation: Tag
    culprit: NodeId
    fault: Sign
    evidence: str
    fatal: str = ""
    status: int | None = None
    """Of a fault that ended the trainer: its exit code, or minus the signal."""
    age_seconds: float = 0.0
    """How long before this message the first sign of it was seen."""
    confidence: Confidence = ""
    """How sure that is, where the sender knows better than the kind of fault says."""
    failing: Failing | None = None
    """Why the job can't run there, as far as can be seen."""
    tried: int = 0
    """As in :class:`MemberStatus`."""
    stranger_at: int = -1
    """The rank at whose address somebody else seems to be: then ``stranger`` is meant, and
    ``fault`` says what an earlier version makes of it. -1: none."""

    @property
    def sign(self) -> Sign:
        """What it speaks of."""
        return self.fault if self.stranger_at < 0 else "stranger"


@dataclass(frozen=True, slots=True)
class Noted:
    """Answer to :class:`Notice`: it is on this node's disk."""

    job: JobId
    generation: Tag


@dataclass(frozen=True, slots=True)
class Progress:
    job: JobId
    generation: Tag
    step: int
    stamp: Stamp
    committed: int
    loss: float | None
    phase: WorkPhase
    steps_per_second: float
    memory_bytes: int
    metrics: dict[str, Any]
    grain_seconds: float = 0.0
    """What a grain, and an update, took the sender lately; 0: it has made none."""
    update_seconds: float = 0.0
    reduce_seconds: float = 0.0
    """What it took lately in this world to reduce a vector so long that its sums may walk along the
    ring, the waiting for others included; 0: there was none."""
    begun: bool = False
    """It computes the step after ``step``, in this world."""
    active_bytes: int = 0
    """Of MLX's memory: what arrays have now, what is kept for reuse, and the most that arrays ever
    had in this process; 0: it doesn't say."""
    cached_bytes: int = 0
    peak_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    """What the time of a step goes to there lately, by part; empty: that is not known."""
    named: dict[str, tuple[int, float]] = field(default_factory=dict)
    """What the script has given to ``run.log`` there: of each name the last value, with its step.
    At most ``MOST_NAMED``, and one more that ``keep_best`` names."""

    def has_begun_after(self, step: int) -> bool:
        """Whether it has begun the step after this one."""
        return self.step > step or (self.step == step and self.begun)


@dataclass(frozen=True, slots=True)
class Pressed:
    """Memory runs short on the sender, and what it could give up by itself did not help."""

    job: JobId
    generation: Tag
    reason: str


@dataclass(frozen=True, slots=True)
class Rechecked:
    """The digest of one grain's gradient, which others compute too."""

    job: JobId
    generation: Tag
    step: int
    grain: int
    digest: str


@dataclass(frozen=True, slots=True)
class Sampled:
    """The digest of the sample at a position of the data, which others tell of, too."""

    job: JobId
    generation: Tag
    step: int
    position: int
    digest: str
    name: str = ""
    """What the data calls it; file and line for example."""


@dataclass(frozen=True, slots=True)
class Returned:
    """What the call of ``run.on_main`` with that index has returned on the sender, in the body of
    a step; 0: above the loop."""

    job: JobId
    generation: Tag
    body: int
    index: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Counted:
    """The sender's trainer has so many results of ``run.on_main`` in the body of a step. ``wants``:
    its script waits until so many are everywhere; its state is that of ``step``."""

    job: JobId
    generation: Tag
    body: int
    has: int
    wants: int = 0
    step: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the leader, who has just begun to drive the job, how the member is."""

    job: JobId


@dataclass(frozen=True, slots=True)
class Freeze:
    epoch: Tag
    job: JobId
    serial: str
    alone: bool
    """No other node is asked: an answer need not wait for a warm reducer."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A world is about to form in which the receiver may not be. With ``partition = "strict"`` so
    many nodes know of every world that the next primary view has one of them."""

    epoch: Tag
    heard: Heard


@dataclass(frozen=True, slots=True)
class Form:
    world: World
    secret: Secret = field(default=NO_SECRET, repr=False)
    """By which the processes of its members know one another; empty: not all of them can."""


@dataclass(frozen=True, slots=True)
class Formed:
    job: JobId
    generation: Tag


@dataclass(frozen=True, slots=True)
class Verdict:
    job: JobId
    generation: Tag
    exact: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Proven:
    """That part of what the receiver's trainer has shown of its first step is as it should be."""

    job: JobId
    generation: Tag
    part: ProofPart


@dataclass(frozen=True, slots=True)
class Hung:
    """The receiver's trainer has overstayed in a phase: end it, with its stack as evidence."""

    job: JobId
    generation: Tag
    why: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Lend:
    """Keep the state of ``step`` by reference when it is reached, and the updates from there on,
    for members to come. ``step`` None: let go of that state; without ``log`` of the updates too."""

    job: JobId
    generation: Tag
    step: int | None
    log: bool


@dataclass(frozen=True, slots=True)
class Prepare:
    """Bring this state to the receiver's trainer, which is in no world, while the others train."""

    job: JobId
    generation: Tag
    wanted: Wanted


@dataclass(frozen=True, slots=True)
class Discharge:
    """The receiver is draining, and a world runs without it: its trainer may end."""

    job: JobId


@dataclass(frozen=True, slots=True)
class Halt:
    """Commit ``step``, write a checkpoint of it, and go no further; -1: go on."""

    job: JobId
    generation: Tag
    step: int


@dataclass(frozen=True, slots=True)
class CallResult:
    """What that call of ``run.on_main`` has returned; it may be used once it is agreed."""

    job: JobId
    generation: Tag
    body: int
    index: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Agreed:
    """Every member has the first ``count`` results of that body."""

    job: JobId
    generation: Tag
    body: int
    count: int


@dataclass(frozen=True, slots=True)
class Release:
    job: JobId
    generation: Tag


OfForming = Noted | Ready | EngineToLeader
"""How far a member has come with a world that forms."""

ToLeader = (
    MemberStatus
    | Holding
    | Lent
    | Prepared
    | OfForming
    | Fault
    | Progress
    | Digest
    | Rechecked
    | Sampled
    | Returned
    | Counted
    | Pressed
    | ShardsWritten
    | ShardsFailed
    | ManifestStored
)
"""What members tell the leader about a job."""

OfPlace = (
    EngineToMember | Formed | Verdict | Proven | Hung | Lend | Halt | CallResult | Agreed | Interval
)
"""What is for a trainer that is in the world it names."""

ToPart = OfPlace | Prepare | Release
"""What the leader tells whoever trains, once there is a world."""

OfJob = Report | Freeze | Form | Discharge | PullShards | ToPart
"""What is for the member of one job."""

ToMember = Notice | ManifestStore | Consistent | OfJob
"""What the leader tells a member; from anybody else it is stale."""
