"""What nodes keep and agree on: views, worlds, and the tables of jobs and nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from elasticd.checkpoints.manifest import Manifest
from elasticd.core.words.limits import clipped
from elasticd.recovery import fitness, lineages, poison
from elasticd.recovery.exactness import weightier
from elasticd.recovery.origin import Origin
from elasticd.recovery.samples import NO_SAMPLES, Samples
from elasticd.recovery.unknown import NOTHING, Unknown, added, later
from elasticd.types import (
    NO_TAG,
    AccountName,
    JobId,
    Lineage,
    NodeId,
    NodeRole,
    Point,
    ProofPart,
    Range,
    Rung,
    Stamp,
    Tag,
    TrainerPhase,
)


@dataclass(frozen=True, slots=True)
class Heard:
    """The newest world of a job that a node has heard of, in it or not."""

    job: JobId
    generation: Tag


@dataclass(frozen=True, slots=True)
class Lost:
    """This node's journal was lost, or a part of it: what it had promised is not known."""

    reason: str


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
    """What was given up for want of memory (elasticd.recovery.relief); it only grows in a turn."""
    relief_turn: int = added(0)
    """How often the operator has had it given back."""
    account: dict[str, Any] = field(default_factory=dict)
    """What ``status`` shows of the course of a job that rests or has ended, which no leader
    remembers later."""
    turn: int = 0
    """Grows with each change between queued and running, and when one that runs is resumed: of two
    records the later one counts."""
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
    inexact: str = ""
    """Why its bits are not those that were promised; empty while they are."""
    unfit: fitness.Entries = ()
    """Nodes that it goes on without since it can't run there, and those that are tried again."""
    served: tuple[NodeId, ...] = ()
    """Nodes on which its script is known to have come to its ``Run``, by name."""
    offered: tuple[NodeId, ...] = ()
    """Nodes that may have it: all that were ever in a view with one that has it, by name."""
    forgotten: bool = False
    """Of an ended job: nothing of it is shown or kept any more. The record stays, so that a node
    that was away hears of it."""
    passed: tuple[str, ...] = added(())
    """Variables that its ranks have of their daemon's environment: what its job.toml says in
    ``job.pass_env``. (Not in ``spec``, since builds are there that refuse the key.)"""
    recipe: str = added("")
    """What its job.toml says in ``[recipe]``, as JSON; empty: it has a script. (Not in ``spec``, as
    above. A build that doesn't know it finds no script, so its node is left out of the job.)"""
    submitter: AccountName = added("")  # noqa: RUF009  a field, as `added` makes them
    """The account that has submitted it; empty: that is not known."""
    submitted_on: NodeId = added(NodeId(""))  # noqa: RUF009  the same
    """The node that it was given to, whose account that is."""
    on_cpu: lineages.MadeOnCpu = added(())  # noqa: RUF009  the same
    """Of lineages for which that was ever decided, since which world, and whether their updates are
    made on the CPU."""
    origin: Origin = added(())  # noqa: RUF009  the same
    """What its processes were built of when its first step was taken."""
    began: Tag = added(NO_TAG)  # noqa: RUF009  the same
    """The generation that took it, if that is known: of two origins the later one's counts."""
    stored: int = added(0)
    """The step of its first consistent checkpoint that a leader has heard of; 0: there is none yet.
    Where there was one the job is never begun anew."""
    unknown: Unknown = field(default=NOTHING, repr=False)
    """What a later version says of it, kept and passed on."""

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

    def bounded(self) -> JobRecord:
        """With no text that is too long; of a forgotten job only what tells that it is forgotten,
        and which archive was its."""
        if self.forgotten:
            spec = {"job": {k: v for k, v in self.spec["job"].items() if k == "name"}}
            return replace(
                self, spec=spec, reason=None, digest=None, account={}, rested="", left=(), ran=(),
                inexact="", unfit=(), served=(), offered=(), origin=(),
            )  # fmt: skip
        reason = None if self.reason is None else clipped(self.reason)
        inexact = clipped(self.inexact)
        if (reason, inexact) == (self.reason, self.inexact):
            return self
        return replace(self, reason=reason, inexact=inexact)

    def merged(self, other: JobRecord) -> JobRecord:
        """The record that both sides agree on, whichever side merges."""
        if self == other:
            return self
        turn, relief = max(relief_of(self), relief_of(other))
        by, on = max((each.submitter, each.submitted_on) for each in (self, other))
        began, origin = max((each.began, each.origin) for each in (self, other))
        joined: dict[str, Any] = {
            "relief": relief,
            "relief_turn": turn,
            "intent": max(self.intent, other.intent),
            "passed": max(self.passed, other.passed),
            "recipe": max(self.recipe, other.recipe),
            "submitter": by,
            "submitted_on": on,
            "on_cpu": lineages.decided(self.on_cpu, other.on_cpu),
            "began": began,
            "stored": max(self.stored, other.stored),
        }
        if self.forgotten or other.forgotten:
            one, two = (replace(each, forgotten=True).bounded() for each in (self, other))
            return replace(later(one, two, _rank), **joined)
        return replace(
            later(self, other, _rank),
            **joined,
            left=lineages.merged(self.left, other.left),
            ran=lineages.latest(self.ran, other.ran),
            inexact=weightier(self.inexact, other.inexact),
            unfit=fitness.merged(self.unfit, other.unfit),
            served=tuple(sorted({*self.served, *other.served})),
            offered=tuple(sorted({*self.offered, *other.offered})),
            origin=origin,
        )


def remembered(record: JobRecord, met: Iterable[NodeId]) -> JobRecord:
    """A record as it is read from this node's journal; ``met`` are the nodes that are in it. What
    an older build wrote doesn't say to whom the job was offered: that may be any of them."""
    if record.ended or record.offered:
        return record
    return replace(record, offered=tuple(sorted(met)))


def relief_of(record: JobRecord) -> tuple[int, int]:
    """The turn and the level of relief: of two the greater counts."""
    return record.relief_turn, record.relief


_JOINED = (
    "relief", "relief_turn", "intent", "left", "ran", "inexact", "unfit", "served", "offered",
    "forgotten", "passed", "recipe", "submitter", "submitted_on", "on_cpu", "origin", "began",
    "stored", "unknown",
)  # fmt: skip
"""What a merged record has of both sides; of any other field it has one side's."""


def _rank(record: JobRecord) -> tuple[int, int, int, int, int, tuple[str, ...]]:
    """Any order will do, but it must tell apart whatever differs in a field that isn't joined.

    A leader that comes when all is done ends the job too, and knows less of its course.
    """
    precedence = _PRECEDENCE.index(record.state)
    end = precedence if record.ended else 0
    known = sum(value is not None for value in record.account.values())
    values = [getattr(record, each.name) for each in fields(record) if each.name not in _JOINED]
    texts = [repr(sorted(v.items()) if isinstance(v, dict) else v) for v in values]
    return end, record.turn, precedence, record.step, known, tuple(texts)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What operators want of a node, and what it does. Records merge by the highest intent, and by
    the node's own last word on its role."""

    node: NodeId
    intent: int = 0
    """Grows with each drain and undrain; odd: no job is to run there."""
    forgotten: bool = False
    """It is gone for good, and not listed until it is back."""
    duty: str = added("")
    """What its elasticd.toml says that it does: which word of its own that is, and the role
    (:meth:`doing`). In one text, so that nodes that don't know the field keep the later one. Nodes
    of such versions say nothing, and train."""
    unknown: Unknown = NOTHING
    """What a later version says of it, kept and passed on."""

    @property
    def draining(self) -> bool:
        return self.intent % 2 == 1

    def merged(self, other: NodeRecord) -> NodeRecord:
        """The record that both sides agree on, whichever side merges."""
        merged = later(self, other, lambda record: (record.intent, record.forgotten))
        duty = max(self.duty, other.duty)
        return merged if merged.duty == duty else replace(merged, duty=duty)

    @property
    def role(self) -> NodeRole:
        """What the node does at most."""
        return next(
            (role for role in get_args(NodeRole) if self.duty.endswith(f" {role}")), "train"
        )

    def doing(self, role: NodeRole) -> NodeRecord:
        """With the node's next word on its role."""
        said = self.duty.partition(" ")[0]
        turn = int(said) + 1 if said.isdecimal() else 1
        return replace(self, duty=f"{turn:09d} {role}")


GOING_BACK: tuple[Rung, ...] = ("start", "rescue", "restore")
"""The rungs by which committed steps may be lost; by a start, those before any checkpoint."""


def keeps_own(source: str) -> bool:
    """Whether a member of a world goes on with what it holds, be it after updates that it lacks."""
    return source == "keep" or source.startswith("updates:")


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
    rung: Rung
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
    relief_turn: int = 0
    """How often what was given up had been given back."""
    count: int = 0
    """Into how many shards a checkpoint is cut, where it was begun in that way; 0: as many as there
    are members."""
    diverged: tuple[tuple[NodeId, int], ...] = ()
    """How often nodes were the odd one out in this job; twice is once too often."""
    writers: tuple[tuple[int, ...], ...] = ()
    """Per shard the ranks that write it, where failure domains decide; empty: as usual."""
    last: int = -1
    """The last step, where the script has asked to stop; -1: the job's."""
    given: tuple[NodeId, ...] = ()
    """Members that came with a state which they had been given: they never ran its step's body."""
    caller: str = ""
    """The member on which the functions run that ``run.on_main`` is given; empty: the first."""
    calls: tuple[tuple[int, int], ...] = ()
    """(step, n): so many results of that step's body it knows, and gives again."""
    unproven: tuple[NodeId, ...] = ()
    """Members that have joined since all last computed the same: they show in the first step that
    they compute what those do that have stayed (``worldlines.stayed``). None where nobody has."""
    alone: bool = False
    """One member has all of the later steps, too, until the step is over that kills."""
    distrusted: Tag = NO_TAG
    """No state is trusted that a member has had since this world, or an older one: who leads after
    a restart of all daemons has to know it, too."""
    walks: bool = False
    """Exact sums are made along the ring: every member's reducer can. Else all parts are gathered,
    which has the same bits."""
    chains: bool = False
    """Fast sums are: every member's reducer can. Else MLX makes them."""
    stores: bool = False
    """The state from which it starts is to be stored, whatever its step: all have taken it from one
    of them, and none since is the same on all."""
    on_cpu: bool = False
    """Its updates are made on the CPU of each member, since GPUs of several kinds would make other
    bits of them."""
    whole: bool = False
    """Who takes the state from a peer takes all of it from that one: its members may compute other
    bits, and parts of several would be nobody's state."""
    spoilt: lineages.Left = ()
    """What was written of states of which nobody knows who is right: later leaders restore none of
    it, either."""
    tried: poison.Tries = ()
    """In which worlds trainers, or their machines, have died at a step that none has got over."""
    fruitless: int = 0
    """Recoveries in a row, up to this world, without progress beyond step ``furthest``."""
    furthest: int = 0

    @property
    def shards(self) -> int:
        """Into how many shards a checkpoint is cut."""
        return self.count or len(self.members)

    @property
    def caller_rank(self) -> int:
        """Where the functions run that ``run.on_main`` is given."""
        named = NodeId(self.caller)
        return self.members.index(named) if named in self.members else 0

    @property
    def takers(self) -> tuple[NodeId, ...]:
        """Members that are to take the state, from a peer or from disks."""
        pairs = zip(self.members, self.sources, strict=True)
        return tuple(node for node, source in pairs if source not in ("keep", "init"))

    def ends_at(self, steps: int) -> int:
        """The last step, in a job of so many."""
        return steps if self.last < 0 else self.last

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
class ProbeDigests:
    """What a fresh process came to, to be compared with the other members' probes: digests of grain
    0's gradient, of one update, of the layout, and the stamp of the state it began with."""

    repeats: bool
    """It came to the same bits twice."""
    gradient: str
    update: str
    layout: str
    state: str
    cpu_update: str = ""
    """The same update, made on the CPU; empty: it can't be made there, or an older build doesn't
    say."""


@dataclass(frozen=True, slots=True)
class Called:
    """What a trainer has of the results of ``run.on_main`` in the body of a step: so many, of which
    those may have been used whose digests are here."""

    body: int
    count: int
    used: tuple[str, ...] = ()
    agreed: Tag | None = None
    """The newest world in which it was said here that they may be used."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What a trainer has come to in the first step of its world, where somebody joins; digests by
    name, none where it has not come to that, or nobody needs them any more."""

    generation: Tag
    grain: dict[str, str] = field(default_factory=dict)
    """Of one grain's gradient."""
    body: dict[str, str] = field(default_factory=dict)
    """Of the state that the step's body has left."""

    def of(self, part: ProofPart) -> dict[str, str]:
        return self.grain if part == "grain" else self.body

    def put(self, part: ProofPart, digests: dict[str, str]) -> Proof:
        """With other digests of that part."""
        return replace(self, grain=digests) if part == "grain" else replace(self, body=digests)


@dataclass(frozen=True, slots=True)
class StopAsked:
    """A script wants ``step`` to be the last."""

    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class TrainerStatus:
    """A trainer as its daemon sees it."""

    phase: TrainerPhase
    pid: int
    fingerprint: dict[str, str]
    probe: ProbeDigests | None
    judged: bool
    prepared: Point | None = None
    """The state that it was brought to enter a world with; none once it has been in one."""
    stop: StopAsked | None = None
    """What its script has asked for in its world."""
    came: bool = True
    """Its thread has taken up its world, or waited for one. A daemon of before doesn't say."""
    proof: Proof | None = None
    """What it has shown of its world's first step, where somebody joins."""
    began: int = 0
    """The step of the first state that its process has had."""
    samples: Samples = NO_SAMPLES
    """What its fingerprint has of them."""


@dataclass(frozen=True, slots=True)
class Path:
    """How a node last found ``peer`` at one of its addresses (``host``, without a port; ``*``: at
    any). Seconds and bytes per second are 0 where nothing was measured."""

    peer: NodeId
    host: str
    healthy: bool
    round_trip_seconds: float = 0.0
    bytes_per_second: float = 0.0
