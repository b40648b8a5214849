"""What a daemon and a trainer say to each other (docs/protocols.md §1).

A trainer runs the user's script, so its frames are checked before they meet the state machine: one
that doesn't fit is a ProtocolError, for which it is killed. An older daemon's trainer may still run
when a newer daemon adopts it, so the names on the wire stay as they are.

Long because it is the whole vocabulary of one conversation, a dataclass for each word.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from elasticd.core.words.codec import Words
from elasticd.core.words.processes import Alive
from elasticd.core.words.records import Called, ProbeDigests
from elasticd.core.words.rewording import reworded
from elasticd.recovery.samples import NO_SAMPLES, Samples
from elasticd.types import (
    JobId,
    Lineage,
    NanCure,
    NodeId,
    Point,
    ProofPart,
    Range,
    Reduction,
    ScriptFault,
    ShardCount,
    SnapshotModeIfAny,
    Stamp,
    Tag,
    WorkPhase,
)

# --- what a trainer says --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrainerWaiting:
    """A spare has come as far as the interpreter, and waits for :class:`RunScript`."""

    kind: ClassVar = "waiting"


@dataclass(frozen=True, slots=True)
class TrainerAtRun:
    """The script has come to ``Run(…)``."""

    kind: ClassVar = "at_run"
    fingerprint: dict[str, str]
    samples: Samples = NO_SAMPLES


@dataclass(frozen=True, slots=True)
class TrainerHere:
    """To a daemon that was started again."""

    kind: ClassVar = "here"
    fingerprint: dict[str, str] | None
    waiting: bool
    generation: Tag | None
    """The world that it is in, and was not frozen out of."""
    entered: Tag | None
    """The newest world in which it had the right state."""
    used: bool
    """Whether it was ever in a world."""
    serial: int
    """Of the last freeze or delivery."""
    judged: bool
    released: bool
    prepared: Point | None = None
    """The state that it was brought before it was ever in a world."""
    took: Tag | None = None
    """The last world in which it was brought a state: what it says of older ones is of another than
    it has. Counter 0: there was none; None: an older trainer, which doesn't say."""
    samples: Samples = NO_SAMPLES
    """Beside the fingerprint."""


@dataclass(frozen=True, slots=True)
class TrainerHolds:
    """Answer to :class:`FreezeTrainer`."""

    kind: ClassVar = "holding"
    serial: int
    point: Point | None
    committed: int | None
    gives: tuple[Stamp, ...] = ()
    """From these states on it has every update up to ``point``."""
    replays: bool = False
    """It can apply updates that others have made."""
    given: bool = False
    """The state came from elsewhere: its step's body never ran here."""
    calls: tuple[Called, ...] = ()
    """Of bodies in which it may still be, or others."""
    body: int = -1
    """In the body of which step its script is, or was last; 0: above the loop, -1: not there."""
    unproven: bool = False
    """The process has yet to show that it computes what the others do."""
    ended: bool | None = None
    """The state is what the body of its step has left: that is not run here any more. None: an
    older trainer, which doesn't say."""


@dataclass(frozen=True, slots=True)
class TrainerCame:
    """The training thread has taken up this world: what it was about before is over."""

    kind: ClassVar = "came"
    generation: Tag
    began: int = 0
    """The step of the first state that its process has had: it ran no body before."""


@dataclass(frozen=True, slots=True)
class TrainerLoaded:
    """The state that :class:`LoadState` brought is in place."""

    kind: ClassVar = "loaded"
    generation: Tag
    step: int
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class TrainerLends:
    """A state is kept for others, or ``reason`` says why not; ``never``: no other step would do."""

    kind: ClassVar = "lent"
    generation: Tag
    step: int
    stamp: Stamp
    reason: str = ""
    never: bool = False


@dataclass(frozen=True, slots=True)
class TrainerPrepared:
    """Answer to the :class:`TakeState` of that serial: what is held now, or why it is not."""

    kind: ClassVar = "prepared"
    serial: int
    point: Point | None
    reason: str = ""
    replays: bool = False


@dataclass(frozen=True, slots=True)
class TrainerSpoilt:
    """A byte of what came from the store is not what was written."""

    kind: ClassVar = "spoilt"
    generation: Tag
    reason: str


@dataclass(frozen=True, slots=True)
class TrainerUnloaded:
    """What came does not lead to the world's state: the world is left."""

    kind: ClassVar = "unloaded"
    generation: Tag
    reason: str
    spent: bool = False
    """It leads there in a new process only."""


@dataclass(frozen=True, slots=True)
class TrainerRefused:
    """A state or world can't be used; the job fails with the reason, or, with ``unfit``, can't run
    on this node."""

    kind: ClassVar = "refused"
    reason: str
    unfit: bool = False
    """The state doesn't fit what the script has built here, or it fails here alone."""
    looping: bool = False
    """It fails while it trains."""


@dataclass(frozen=True, slots=True)
class TrainerExported:
    """Answer to :class:`ExportState`; the file comes as a descriptor."""

    kind: ClassVar = "exported"
    serial: int
    step: int
    stamp: Stamp
    bytes: int


@dataclass(frozen=True, slots=True)
class TrainerNotExported:
    kind: ClassVar = "not_exported"
    serial: int
    reason: str


@dataclass(frozen=True, slots=True)
class TrainerProgress:
    kind: ClassVar = "progress"
    generation: Tag
    step: int
    """Applied."""
    stamp: Stamp
    committed: int | None
    loss: float | None
    phase: WorkPhase
    steps_per_second: float | None
    memory_bytes: int
    metrics: dict[str, Any]
    grain_seconds: float = 0.0
    """What a grain, and an update, took lately; 0: there was none."""
    update_seconds: float = 0.0
    reduce_seconds: float = 0.0
    """As in :class:`Progress`."""
    begun: bool = False
    """It computes the step after ``step``, in this world."""
    active_bytes: int = 0
    """Of MLX's memory: what arrays have now, what is kept for reuse, and the most that arrays ever
    had in this process; 0: it doesn't say."""
    cached_bytes: int = 0
    peak_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    """What the time of a step goes to lately, by part (``StepPart``); empty: that is not known."""
    named: dict[str, tuple[int, float]] = field(default_factory=dict)
    """As in :class:`Progress`."""


@dataclass(frozen=True, slots=True)
class TrainerProbed:
    """Digests of grain 0's gradient, of one update, of the layout, from the state with a stamp."""

    kind: ClassVar = "probe"
    repeats: bool
    gradient: str
    update: str
    layout: str
    state: str
    generation: Tag | None = None
    cpu_update: str = ""
    """As in :class:`ProbeDigests`."""

    def result(self) -> ProbeDigests:
        """What of it is compared with other members' probes."""
        return reworded(ProbeDigests, self)


@dataclass(frozen=True, slots=True)
class TrainerStops:
    """The script wants the committed ``step`` to be the last; it waits for another world."""

    kind: ClassVar = "stops"
    generation: Tag
    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class TrainerReturned:
    """What the call of ``run.on_main`` with that index has returned here, in the body of a step;
    0: above the loop."""

    kind: ClassVar = "returned"
    generation: Tag
    body: int
    index: int
    data: bytes


@dataclass(frozen=True, slots=True)
class TrainerCounts:
    """So many results of ``run.on_main`` in the body of a step are here. ``wants``: the script
    waits until so many are everywhere; its state is that of ``step``."""

    kind: ClassVar = "counts"
    generation: Tag
    body: int
    has: int
    wants: int = 0
    step: int = 0


@dataclass(frozen=True, slots=True)
class TrainerLostReducer:
    kind: ClassVar = "reducer_lost"
    generation: Tag
    evidence: str


@dataclass(frozen=True, slots=True)
class TrainerOutOfMemory:
    """An allocation failed in a grain: the world is left, the state is kept."""

    kind: ClassVar = "oom"
    generation: Tag
    evidence: str


@dataclass(frozen=True, slots=True)
class TrainerLostScript:
    """A plain job's script has ended on this rank, or hangs: the world is left, to begin it anew
    everywhere."""

    kind: ClassVar = "script_lost"
    generation: Tag
    fault: ScriptFault
    evidence: str


@dataclass(frozen=True, slots=True)
class TrainerNotFinite:
    """The reduced loss is NaN or infinite, or a reduced gradient is."""

    kind: ClassVar = "not_finite"
    generation: Tag
    step: int
    loss: str
    policy: NanCure


@dataclass(frozen=True, slots=True)
class TrainerDigest:
    """The check of a committed step's state."""

    kind: ClassVar = "digest"
    generation: Tag
    step: int
    stamp: Stamp
    digest: str
    parts: tuple[tuple[str, str], ...] = ()
    """As in :class:`TrainerWrote`."""


@dataclass(frozen=True, slots=True)
class TrainerRechecked:
    """The digest of one grain's gradient, which others compute too."""

    kind: ClassVar = "rechecked"
    generation: Tag
    step: int
    grain: int
    digest: str


@dataclass(frozen=True, slots=True)
class TrainerProves:
    """What it has come to in the world's first step, where somebody joins: digests by name."""

    kind: ClassVar = "proves"
    generation: Tag
    part: ProofPart
    digests: dict[str, str]


@dataclass(frozen=True, slots=True)
class TrainerSampled:
    """The digest of the sample at a position, which others tell of, too."""

    kind: ClassVar = "sampled"
    generation: Tag
    step: int
    position: int
    digest: str
    name: str = ""
    """What the data calls it; file and line for example."""


@dataclass(frozen=True, slots=True)
class WrittenShard:
    index: int
    bytes: int
    digest: str
    tensors: dict[str, str] = field(default_factory=dict)
    """The beginning of each tensor's digest."""


@dataclass(frozen=True, slots=True)
class TrainerWrote:
    """These shards are durable in the folder that the world names."""

    kind: ClassVar = "shards"
    generation: Tag
    lineage: Lineage
    step: int
    stamp: Stamp
    count: ShardCount
    shards: tuple[WrittenShard, ...]
    digest: str
    """The model's; empty where nobody needs it of this member."""
    check: str
    """Of the model and of what the script tracks, to be compared with the others'."""
    stall_seconds: float
    write_seconds: float
    mode: SnapshotModeIfAny = ""
    metric: float | None = None
    cost_seconds: float = 0.0
    step_seconds: float = 0.0
    parts: tuple[tuple[str, str], ...] = ()
    """Where the script tracks anything: of the model and of each such thing, its name and the
    beginning of its digest."""


@dataclass(frozen=True, slots=True)
class TrainerSkipped:
    """This member's shards of a due checkpoint were not written; ``refused``: by its disk."""

    kind: ClassVar = "checkpoint_skipped"
    generation: Tag
    lineage: Lineage
    step: int
    stamp: Stamp
    count: ShardCount
    reason: str
    refused: bool


@dataclass(frozen=True, slots=True)
class TrainerFinished:
    """The last step is committed; it waits for :class:`ReleaseTrainer`."""

    kind: ClassVar = "finished"
    generation: Tag
    step: int
    stamp: Stamp


FromTrainer = (
    TrainerWaiting
    | TrainerAtRun
    | TrainerHere
    | TrainerHolds
    | TrainerCame
    | TrainerLoaded
    | TrainerLends
    | TrainerPrepared
    | TrainerSpoilt
    | TrainerUnloaded
    | TrainerRefused
    | TrainerExported
    | TrainerNotExported
    | TrainerProgress
    | TrainerProbed
    | TrainerStops
    | TrainerReturned
    | TrainerCounts
    | TrainerLostReducer
    | TrainerOutOfMemory
    | TrainerLostScript
    | TrainerNotFinite
    | TrainerDigest
    | TrainerRechecked
    | TrainerProves
    | TrainerSampled
    | TrainerWrote
    | TrainerSkipped
    | TrainerFinished
)

OfWorld = (
    TrainerCame
    | TrainerLoaded
    | TrainerLends
    | TrainerSpoilt
    | TrainerUnloaded
    | TrainerProgress
    | TrainerStops
    | TrainerReturned
    | TrainerCounts
    | TrainerLostReducer
    | TrainerOutOfMemory
    | TrainerLostScript
    | TrainerNotFinite
    | TrainerRechecked
    | TrainerProves
    | TrainerSampled
    | TrainerFinished
)
"""What a trainer says of the world that it is in."""


# --- what a trainer is told -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunScript:
    """To a spare that waits: go on to the script."""

    kind: ClassVar = "run"


@dataclass(frozen=True, slots=True)
class FreezeTrainer:
    """Leave the present world now, start nothing in it, say what you hold."""

    kind: ClassVar = "freeze"
    serial: int


@dataclass(frozen=True, slots=True)
class WritePlan:
    """When a checkpoint is due and who writes what of it."""

    every: int
    count: ShardCount
    replicas: int
    writers: tuple[tuple[int, ...], ...] = ()
    """Per shard the ranks that write it; empty: as checkpoints/layout.py says."""
    also: int = -1
    """A step whose state is stored, too."""


@dataclass(frozen=True, slots=True)
class Newcomers:
    """Who shows in a world's first step that it computes what those do that have stayed."""

    ranks: tuple[int, ...] = ()
    keeper: int = -1
    """The first rank that has stayed, with whose grain theirs is compared; -1: nobody joins."""


@dataclass(frozen=True, slots=True)
class GiveWorld:
    """Enter this world from the committed state (step, stamp).

    ``shares_now`` deals the grains of the next step, ``shares`` those of all later ones. ``state``
    is ``keep`` (it is in place), ``init`` (the script's own) or ``load`` (it will be brought).
    Chunk memory and data socket come as descriptors, but in a world of one.
    """

    kind: ClassVar = "world"
    generation: Tag
    job: JobId
    rank: int
    size: int
    members: tuple[NodeId, ...]
    lineage: Lineage
    step: int
    stamp: Stamp
    state: Literal["keep", "load", "init"]
    shares_now: tuple[tuple[Range, ...], ...]
    shares: tuple[tuple[Range, ...], ...]
    reduction: Reduction
    checkpointed: int
    checkpoint_folder: str
    writes: WritePlan
    micro: int = 0
    """Samples in a grain; 0: as job.toml says."""
    relief: int = 0
    last: int = -1
    """The last step; -1: as job.toml says."""
    caller: int = 0
    """The rank on which the functions run that ``run.on_main`` is given."""
    calls: tuple[tuple[int, int], ...] = ()
    """(step, n): so many results of that step's body it knows, and gives again."""
    newcomers: Newcomers = field(default_factory=Newcomers)
    walks: bool = False
    """Exact sums are made along the ring, which the reducer knows by itself: how many bytes that
    takes is shown."""
    addresses: tuple[str, ...] = ()
    """Of a plain job: where each rank's script is to listen for the rank before it."""
    on_cpu: bool = False
    """Updates are made on the CPU."""


@dataclass(frozen=True, slots=True)
class LoadState:
    """Files that together are the state, or one with the updates that lead to it."""

    kind: ClassVar = "load"
    generation: Tag
    digests: tuple[str, ...] = ()
    """Of all files or none; checked while they are read."""


@dataclass(frozen=True, slots=True)
class SetInterval:
    """From ``step`` on a checkpoint is due every so many steps."""

    kind: ClassVar = "interval"
    generation: Tag
    every: int
    step: int


@dataclass(frozen=True, slots=True)
class ExportState:
    """Write into a nameless file: the updates after ``since`` if those are held, else a part of the
    state."""

    kind: ClassVar = "export"
    serial: int
    step: int
    stamp: Stamp
    since: Stamp | None = None
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, slots=True)
class LendState:
    """Keep the state of ``step`` when it is reached, and the updates from there on. None: let go of
    the state; without ``log`` of the updates too."""

    kind: ClassVar = "lend"
    generation: Tag
    step: int | None
    log: bool


@dataclass(frozen=True, slots=True)
class TakeState:
    """To a trainer in no world: these files are a state, or updates to what it holds."""

    kind: ClassVar = "prepare"
    serial: int


@dataclass(frozen=True, slots=True)
class TrimMemory:
    """Give caches back, and keep them small."""

    kind: ClassVar = "trim"


@dataclass(frozen=True, slots=True)
class StrainMemory:
    """For ``elasticctl chaos oom``: the next grain allocates so much besides."""

    kind: ClassVar = "strain"
    bytes: int


@dataclass(frozen=True, slots=True)
class TellVerdict:
    """What the leader found by comparing all probes."""

    kind: ClassVar = "exact"
    generation: Tag
    exact: bool
    reason: str


@dataclass(frozen=True, slots=True)
class TellProven:
    """That part of what it has shown is what a member has that has stayed."""

    kind: ClassVar = "proven"
    generation: Tag
    part: ProofPart


@dataclass(frozen=True, slots=True)
class HaltAt:
    """Go no further than this step, which is checkpointed; -1: go on."""

    kind: ClassVar = "halt"
    generation: Tag
    step: int


@dataclass(frozen=True, slots=True)
class TellResult:
    """What that call of ``run.on_main`` has returned."""

    kind: ClassVar = "result"
    generation: Tag
    body: int
    index: int
    data: bytes


@dataclass(frozen=True, slots=True)
class TellAgreed:
    """Every member has the first ``count`` results of that body: they may be used."""

    kind: ClassVar = "agreed"
    generation: Tag
    body: int
    count: int


@dataclass(frozen=True, slots=True)
class ReleaseTrainer:
    """The final checkpoint is consistent: leave the loop."""

    kind: ClassVar = "release"


ToTrainer = (
    Alive
    | RunScript
    | FreezeTrainer
    | GiveWorld
    | LoadState
    | SetInterval
    | ExportState
    | LendState
    | TakeState
    | TrimMemory
    | StrainMemory
    | TellVerdict
    | TellProven
    | HaltAt
    | TellResult
    | TellAgreed
    | ReleaseTrainer
)


FROM_TRAINER: Words[FromTrainer] = Words(FromTrainer, rows=True)
TO_TRAINER: Words[ToTrainer] = Words(ToTrainer, rows=True)
