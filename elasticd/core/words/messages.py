"""What daemons say to one another, and the records that they keep.

Frozen data only. :func:`encode` and :func:`decode` are the wire form; an unknown type or a field
that doesn't fit is a ProtocolError.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.core.words.codec import Plain, from_plain, to_plain
from elasticd.errors import ProtocolError
from elasticd.recovery import lineages
from elasticd.recovery.quorum import History
from elasticd.types import JobId, Lineage, NodeId, Point, Range, Stamp, Tag

# --- records -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heard:
    """The newest world of a job that a node has heard of, in it or not."""

    job: JobId
    generation: Tag


@dataclass(frozen=True, slots=True)
class View:
    """The agreed set of living nodes."""

    epoch: Tag
    members: tuple[NodeId, ...]
    primary: bool = True
    """Whether it may train. In a proposal with ``partition = "strict"`` it is False until all
    members have promised it and said what they remember."""
    why: str = ""
    """Why it is primary, or not; with ``partition = "available"`` empty."""
    away: tuple[NodeId, ...] = ()
    """Nodes that may still train in an older view, until they notice."""
    heard: tuple[Heard, ...] = ()
    """What its members had heard of worlds."""
    voters: tuple[NodeId, ...] = ()
    """Nodes that leave on purpose, and have their say in who may train for the last time."""

    @property
    def leader(self) -> NodeId:
        return self.epoch.leader


JobState = Literal["queued", "running", "failed", "finished", "cancelled"]
_PRECEDENCE: tuple[JobState, ...] = ("queued", "running", "failed", "finished", "cancelled")


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job as every node keeps it. Records merge by union; a cancel is a tombstone that wins."""

    id: JobId
    number: int
    spec: dict[str, Any]
    archive: str
    state: JobState
    reason: str | None = None
    step: int = 0
    digest: str | None = None
    relief: int = 0
    """What was given up for want of memory (elasticd.recovery.relief); it only grows."""
    account: dict[str, Any] = field(default_factory=dict)
    """Of an ended job: what ``status`` shows of its course, which no leader remembers later."""
    turn: int = 0
    """Grows with each change between queued and running: of two records the later one counts."""
    rested: str = ""
    """The generation that was stopped when it was paused last."""
    intent: int = 0
    """Grows with each pause and resume of the operator; odd: it shall be paused."""
    left: tuple[tuple[Lineage, int], ...] = ()
    """Lineages that met one that was further, and the step behind which they are left
    (recovery/lineages.py)."""
    ran: tuple[tuple[Lineage, Tag], ...] = ()
    """How far lineages went from which a world turned away: who has slept through that knows only
    an older generation of it."""

    @property
    def paused(self) -> bool:
        """Whether the operator wants it paused; it is when it is no longer running."""
        return self.intent % 2 == 1

    @property
    def priority(self) -> int:
        return int(self.spec["job"].get("priority", 0))

    @property
    def ended(self) -> bool:
        return self.state in ("failed", "finished", "cancelled")

    def merged(self, other: JobRecord) -> JobRecord:
        """The record that both sides agree on, whichever side merges."""

        def rank(record: JobRecord) -> tuple[int, int, int, int, str, str, str, str]:
            # Any order will do, but it must tell apart whatever differs: "" is not None.
            precedence = _PRECEDENCE.index(record.state)
            end = precedence if record.ended else 0
            account = repr(sorted(record.account.items())) if record.account else ""
            texts = repr(record.reason), repr(record.digest), record.rested, account
            return end, record.turn, precedence, record.step, *texts

        return replace(
            max(self, other, key=rank),
            relief=max(self.relief, other.relief),
            intent=max(self.intent, other.intent),
            left=lineages.merged(self.left, other.left),
            ran=lineages.latest(self.ran, other.ran),
        )


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What operators want of a node. Records merge by the highest intent."""

    node: NodeId
    intent: int = 0
    """Grows with each drain and undrain; odd: no job is to run there."""

    @property
    def draining(self) -> bool:
        return self.intent % 2 == 1

    def merged(self, other: NodeRecord) -> NodeRecord:
        """The record that both sides agree on, whichever side merges."""
        return max(self, other, key=lambda record: record.intent)


GOING_BACK = ("rescue", "restore")
"""The rungs by which committed steps may be lost."""


@dataclass(frozen=True, slots=True)
class World:
    """The ordered members of one job with their plan. Numbered by generation.

    ``shares_now`` deals the grains of step ``step + 1``, ``shares`` those of all later steps.
    ``sources`` says per rank where its state comes from: ``keep``, ``init``, ``peer:NODE`` (the
    whole state), ``updates:NODE`` (the reduced gradients that it lacks) or ``checkpoint``.
    """

    job: JobId
    generation: Tag
    epoch: Tag
    lineage: Lineage
    parent: Point | None
    step: int
    stamp: Stamp
    members: tuple[NodeId, ...]
    sources: tuple[str, ...]
    hosts: tuple[str, ...]
    shares_now: tuple[tuple[Range, ...], ...]
    shares: tuple[tuple[Range, ...], ...]
    rung: str
    reason: str
    recoveries: int
    lost_steps: int
    exact: bool
    checkpointed: int
    manifest: Manifest | None
    holders: tuple[tuple[NodeId, ...], ...]
    """Of a restore: the checkpoint, and per shard the nodes to ask for it, in order."""
    relief: int = 0
    """The level of relief in force; the grains that shares deal depend on it."""
    count: int = 0
    """Into how many shards a checkpoint is cut, where it was begun in that way; 0: as many as there
    are members."""
    diverged: tuple[tuple[NodeId, int], ...] = ()
    """How often nodes were the odd one out in this job; twice is once too often."""
    writers: tuple[tuple[int, ...], ...] = ()
    """Per shard the ranks that write it, where failure domains decide; empty: as usual."""

    @property
    def shards(self) -> int:
        """Into how many shards a checkpoint is cut."""
        return self.count or len(self.members)

    @property
    def goes_back(self) -> bool:
        """Whether it may start before steps that were committed."""
        return self.rung in GOING_BACK


@dataclass(frozen=True, slots=True)
class Wanted:
    """A state to be had from any of ``holders``, each of which gives a part of it.

    With ``since`` the taker holds that point, and the updates that lead from there on will do.
    """

    point: Point
    holders: tuple[NodeId, ...]
    since: Point | None = None


@dataclass(frozen=True, slots=True)
class TrainerStatus:
    """A trainer as its daemon sees it. ``phase``: starting, ready, active, finished, released,
    done."""

    phase: str
    pid: int
    fingerprint: dict[str, str]
    probe: dict[str, Any] | None
    judged: bool


@dataclass(frozen=True, slots=True)
class Path:
    """How a node last found ``peer`` at one of its addresses (``host``, without a port; ``*``: at
    any). Seconds and bytes per second are 0 where nothing was measured."""

    peer: NodeId
    host: str
    healthy: bool
    round_trip_seconds: float = 0.0
    bytes_per_second: float = 0.0


# --- liveness and views --------------------------------------------------------------------------


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


# --- jobs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Jobs:
    records: tuple[JobRecord, ...]


@dataclass(frozen=True, slots=True)
class JobsKept:
    """The records of a :class:`Jobs` message are on this node's disk."""

    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class Nodes:
    records: tuple[NodeRecord, ...]


@dataclass(frozen=True, slots=True)
class NodesKept:
    """The records of a :class:`Nodes` message are on this node's disk."""

    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Departing:
    """The sender is about to be stopped: its ranks are to leave at the next step boundary."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The leader's account of a running job, for every daemon that is asked."""

    job: JobId
    fields: dict[str, Any]


# --- worlds, member to leader ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemberStatus:
    epoch: Tag
    job: JobId
    trainer: TrainerStatus | None
    trouble: str
    hopeless: bool
    """No trainer comes up here, however often it is tried."""
    fatal: str
    """The script's own failure, if that is what ended the trainer: the job is over."""
    world: World | None
    """The newest that the node was a member of, whether or not its trainer is in it still."""
    formed: bool
    ready: bool
    """The trainer is in ``world`` with the right state and a ring, and nothing speaks against
    it."""
    faults: tuple[tuple[str, str], ...]
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
    """No other step would do: the script's own code is part of the state."""


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
class Listening:
    job: JobId
    generation: Tag


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
    fault: str
    evidence: str
    fatal: str = ""
    status: int | None = None
    """Of a fault that ended the trainer: its exit code, or minus the signal."""
    age_seconds: float = 0.0
    """How long before this message the first sign of it was seen."""
    confidence: str = ""
    """How sure that is, where the sender knows better than the kind of fault says."""


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
    phase: str
    steps_per_second: float
    memory_bytes: int
    metrics: dict[str, Any]
    grain_seconds: float = 0.0
    """What a grain, and an update, took the sender lately; 0: it has made none."""
    update_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Digest:
    """The check of the model of a committed step, as the sender holds it."""

    job: JobId
    generation: Tag
    step: int
    stamp: Stamp
    digest: str


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
class ShardsWritten:
    """These shards of a state are durable on the sender."""

    job: JobId
    generation: Tag
    lineage: Lineage
    step: int
    stamp: Stamp
    count: int
    shards: tuple[tuple[int, int, str], ...]
    digest: str
    """The model's, from those who have the first shard at least; else empty."""
    stall_seconds: float
    write_seconds: float
    mode: str = ""
    """How the state was held meanwhile: reference or slices."""
    cost_seconds: float = 0.0
    """By how much the steps beside the writing were longer than others, in all."""
    metric: float | None = None
    """The figure by which the job keeps its best checkpoint."""
    step_seconds: float = 0.0
    """Of a step beside which nothing is written; 0: not known."""
    tensors: tuple[tuple[tuple[str, str], ...], ...] = ()
    """Of each of ``shards``, if known: its tensors and the beginning of their digests."""
    check: str = ""
    """Of the parameters that the sender has itself; none where it has copied the shards."""

    def own(self) -> Digest | None:
        """What it says of the sender's own parameters."""
        if not self.check:
            return None
        return Digest(self.job, self.generation, self.step, self.stamp, self.check)


@dataclass(frozen=True, slots=True)
class ShardsFailed:
    """The sender has not stored its part of a checkpoint, or copies that it was asked for."""

    job: JobId
    generation: Tag
    lineage: Lineage
    step: int
    stamp: Stamp
    count: int
    reason: str
    refused: bool
    """Its disk refuses; otherwise it may work another time."""


@dataclass(frozen=True, slots=True)
class ManifestStored:
    job: JobId
    lineage: Lineage
    step: int
    stamp: Stamp
    count: int
    """Of shards: one state may be cut in two ways, by worlds of two sizes."""
    ok: bool
    reason: str
    refused: bool = False
    """As in :class:`ShardsFailed`."""


# --- worlds, leader to member ---------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class Go:
    job: JobId
    generation: Tag


@dataclass(frozen=True, slots=True)
class Continue:
    job: JobId
    generation: Tag


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
class Release:
    job: JobId
    generation: Tag


@dataclass(frozen=True, slots=True)
class ManifestStore:
    job: JobId
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Consistent:
    """This checkpoint is consistent: older ones may go as the job's retention wants."""

    job: JobId
    lineage: Lineage
    step: int


@dataclass(frozen=True, slots=True)
class Interval:
    """From ``step`` on checkpoint every so many steps. A member that hears it late writes shards of
    other steps, which nobody completes: they are swept away."""

    job: JobId
    generation: Tag
    every: int
    step: int


@dataclass(frozen=True, slots=True)
class PullShards:
    """Ask a node to hold copies.

    ``sources`` names per shard the nodes that have it.
    """

    job: JobId
    generation: Tag
    lineage: Lineage
    step: int
    stamp: Stamp
    count: int
    digest: str
    shards: tuple[tuple[int, int, str], ...]
    sources: tuple[tuple[NodeId, ...], ...]

    def undone(self, reason: str) -> ShardsFailed:
        """The answer of a node that may do it another time."""
        return ShardsFailed(
            self.job, self.generation, self.lineage, self.step, self.stamp, self.count, reason,
            refused=False,
        )  # fmt: skip


Message = (
    Heartbeat
    | Probe
    | Vouch
    | Carry
    | Missing
    | Obituary
    | Leaving
    | ViewPropose
    | ViewAck
    | ViewNack
    | ViewForm
    | Jobs
    | JobsKept
    | Nodes
    | NodesKept
    | Departing
    | Summary
    | MemberStatus
    | Holding
    | Lent
    | Prepared
    | Listening
    | Ready
    | Fault
    | Progress
    | Digest
    | Rechecked
    | Pressed
    | ShardsWritten
    | ShardsFailed
    | ManifestStored
    | Noted
    | Report
    | Freeze
    | Notice
    | Form
    | Go
    | Continue
    | Formed
    | Verdict
    | Hung
    | Lend
    | Prepare
    | Halt
    | Discharge
    | Release
    | ManifestStore
    | Consistent
    | PullShards
    | Interval
)

UNNUMBERED = (Heartbeat, Probe, Vouch, Carry)
"""What is outside of a session's order: of no use once it is late, or ordered within."""

_TYPES: dict[str, type] = {kind.__name__: kind for kind in Message.__args__}


def encode(message: Message) -> dict[str, Plain]:
    return {"t": type(message).__name__, **to_plain(message)}


def decode(plain: dict[str, Plain]) -> Message:
    """Raises ProtocolError for an unknown type or a field that doesn't fit."""
    fields = dict(plain)
    kind = _TYPES.get(str(fields.pop("t", "")))
    if kind is None:
        raise ProtocolError(f"unknown message {plain.get('t')!r}")
    message: Message = from_plain(kind, fields)
    return message
