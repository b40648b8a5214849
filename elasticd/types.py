"""Names that every layer shares: identifiers, states of a trainer, ranges of grains.

Pure data. A number that orders views or worlds is a :class:`Tag`, equal only as a whole, so that
two leaders which chose the same counter can never be taken for one another.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Annotated, Literal, NewType, get_args

NodeId = NewType("NodeId", str)
JobId = NewType("JobId", str)
Stamp = NewType("Stamp", str)
Lineage = NewType("Lineage", str)
Secret = NewType("Secret", bytes)
"""What only the members of one world know; empty: they have none. Never shown, kept or logged."""
NO_SECRET = Secret(b"")
SECRET_BYTES = 32


NODE_ID = "[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
OF_NODE_ID = OF_JOB_ID = "1 to 63 letters, digits, '.', '_' and '-'"
"""What :data:`NODE_ID` takes, in words."""
_node_id = re.compile(NODE_ID)


def is_node_id(text: str) -> bool:
    """Whether a node may be called so: what others say is checked like elasticd.toml."""
    return _node_id.fullmatch(text) is not None


def is_job_id(text: str) -> bool:
    """Whether a job may have that id, which comes to file names: whatever a daemon gives is shaped
    like a node's id, and begins with the job's name."""
    return is_node_id(text)


@dataclass(frozen=True, slots=True)
class Within:
    """Which numbers a field takes, both ends included; what comes from elsewhere is checked."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Printable:
    """Which texts a field takes: of printable letters, so many at most."""

    most: int


CACHE_VARIABLE = "ELASTICD_CACHE_DIR"
"""Tells a trainer in which folder its node keeps what can be made anew."""
MOST_ACCOUNT_LETTERS = 64
AccountName = Annotated[str, Printable(MOST_ACCOUNT_LETTERS)]
"""Of an account of some node's machine, which that node tells."""
ShardCount = Annotated[int, Within(1, 4096)]
"""Into how many shards a state is cut."""
Range = tuple[int, int]
"""Half-open range ``[start, end)`` of grain numbers inside one global batch."""
Reduction = Literal["exact", "fast"]
"""How gradients are added: the same bits whatever the world's size, or the backend's own sum."""
Backend = Literal["ring"]
"""Whose collectives a world uses; jaccl and mpi come later (core/engines/backends.py)."""
Rung = Literal["start", "grow", "retry", "regroup", "relieve", "rescue", "restore"]
"""How a world came about; from ``retry`` on the ways to recover, from cheap to dear."""
Sign = Literal[
    "peer_lost", "oom", "hang", "worker_exit", "divergence", "not_finite", "reducer_lost",
    "state_unavailable", "link_lost", "reducer_crashed", "stranger", "reducer_gone", "ring_broken",
]  # fmt: skip
"""What a piece of evidence speaks of (recovery/faults.py makes faults of them). ``stranger`` is
never sent, since daemons of before don't know it (:class:`elasticd.core.words.worlds.Fault`)."""
FaultKind = Literal[
    "worker_exit", "reducer_lost", "oom", "link_lost", "hang", "peer_lost", "divergence", "slow",
]  # fmt: skip
"""What people are told (docs/faults.md)."""
ScriptFault = Literal["reducer_lost", "hang"]
"""What ended a plain job's script on one rank. It holds the rank's group, as a reducer does."""
Role = Literal["trainer", "reducer"]
"""Of a daemon's child."""
NodeRole = Literal["train", "store", "witness"]
"""What a node does at most: one that trains does all, a store holds copies and votes, a witness
votes."""

Partition = Literal["available", "strict"]
"""What the sides of a cut cluster do: each goes on, or one at most."""
JobMode = Literal["elastic", "plain"]
"""What runs a job's steps: the library, or its own script, with a group of its own."""
SpareKind = Literal["script", "interpreter", "none"]
"""How far a trainer that waits has come."""
NanPolicy = Literal["stop", "skip", "restore"]
"""What a job wants of a loss that is NaN or infinite."""
DivergencePolicy = Literal["restore", "continue"]
"""What a job wants of members whose states differ: all go back, or on with the majority's."""
NanCure = Literal["skip", "restore"]
"""What a trainer does about one: the step counts without its update, or the world is left."""
SnapshotMode = Literal["reference", "slices"]
"""How a state is held while it is written: training goes on, or an update waits for it."""
SnapshotModeIfAny = Literal["", SnapshotMode]
SnapshotWish = Literal["auto", SnapshotMode]
Confidence = Literal["", "certain", "likely", "possible"]
"""How sure a fault is; empty: as its kind says."""
TrainerPhase = Literal["starting", "waiting", "ready", "active", "finished", "released", "done"]
"""A trainer as its daemon sees it."""
ProofPart = Literal["grain", "body"]
"""What a member that joins shows in its first step: a grain's gradient, and the state that the
body has left."""
WorkPhase = Literal["data", "compute", "reduce", "update", "user", "evaluate", "idle", "paused"]
"""What a trainer is about in its world."""
StepPart = Literal["data", "compute", "reduce", "update", "waiting", "checkpoint", "script"]
"""What the time of a step goes to; ``script``: what is the script's own, between two steps."""
STEP_PARTS: tuple[StepPart, ...] = get_args(StepPart)
MOST_NAMED = 32
"""Names of ``run.log`` of which a job's values are shown."""
MOST_NAME_LETTERS = 64
"""Of such a name."""


@dataclass(frozen=True, order=True, slots=True)
class Tag:
    """(counter, leader, nonce): names a view (epoch) or a world (generation)."""

    counter: int
    leader: NodeId
    nonce: str

    def __str__(self) -> str:
        return f"{self.counter}@{self.leader}/{self.nonce[:6]}"


NO_TAG = Tag(0, NodeId(""), "")


def counter_of(tag: str) -> int:
    """That of a tag of which only the text is kept; 0: it is none."""
    counter, at, _ = tag.partition("@")
    return int(counter) if at and counter.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class Point:
    """Names one state of a job: the last applied step and the history that led to it."""

    lineage: Lineage
    step: int
    stamp: Stamp


def first_stamp(job: JobId, lineage: Lineage) -> Stamp:
    """The stamp of the state before step 1."""
    return _stamp("first", job, lineage)


def next_stamp(parent: Stamp, generation: Tag, step: int) -> Stamp:
    """The stamp of the state reached when ``generation`` reduced ``step`` on top of ``parent``."""
    tag = generation
    return _stamp("step", parent, tag.counter, tag.leader, tag.nonce, step)


def _stamp(*parts: object) -> Stamp:
    text = "\0".join(str(part) for part in parts)
    return Stamp(hashlib.blake2b(text.encode(), digest_size=16).hexdigest())
