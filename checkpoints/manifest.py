"""The manifest of a checkpoint: which state it is, the shards that make it up, and who holds them.
Pure.

On disk it is msgpack: an envelope with a version and a digest around the map of fields, so that a
flipped bit is found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from elasticd.checkpoints.integrity import is_digest
from elasticd.errors import StateError
from elasticd.types import (
    OF_JOB_ID,
    OF_NODE_ID,
    JobId,
    Lineage,
    NodeId,
    Point,
    ShardCount,
    Stamp,
    Tag,
    is_job_id,
    is_node_id,
)

VERSION = 1
MAX_BYTES = 16 << 20
"""Longer is not a manifest: it has a few hundred bytes for each shard."""
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a checkpoint; ``digest`` names its algorithm (see
    :mod:`elasticd.checkpoints.integrity`)."""

    index: int
    bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A consistent checkpoint.

    ``holders[i]`` are the nodes on which ``shards[i]`` was durable when this was written.

    ``parent`` is the checkpoint from which the lineage was opened, if it was a restore. ``samples``
    is the position in the data, counted in samples from the start; ``micro`` the samples of a
    grain; ``digest`` the model's; ``created_seconds`` the wall clock of the node that wrote the
    manifest, for people only.
    """

    job: JobId
    lineage: Lineage
    parent: Point | None
    step: int
    stamp: Stamp
    generation: Tag
    samples: int
    micro: int
    count: ShardCount
    shards: tuple[Shard, ...]
    holders: tuple[tuple[NodeId, ...], ...]
    digest: str
    created_seconds: float
    metric: float | None = None
    """The figure by which the job keeps its best, as it was when the state was taken."""
    last: bool = False
    """The script has asked to stop, and this is its last step: nobody trains on from it."""
    agreed: bool = False
    """All members of the world that wrote it had this state."""

    @property
    def point(self) -> Point:
        return Point(self.lineage, self.step, self.stamp)

    @property
    def bytes(self) -> int:
        """Of one copy of all shards."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def replicas(self) -> int:
        """On how many nodes even the least held shard was."""
        return min(len(nodes) for nodes in self.holders)

    def held_by(self, node: NodeId) -> tuple[int, ...]:
        """The shards that ``node`` was to hold."""
        return tuple(index for index, nodes in enumerate(self.holders) if node in nodes)

    def same_state(self, other: Manifest) -> bool:
        """Whether both describe the same files of the same state, whoever holds them."""
        return (self.job, self.point, self.shards) == (other.job, other.point, other.shards)


def ousts(new: Manifest, old: Manifest) -> bool:
    """Whether ``new`` is of a lineage that left ``old``'s before that one's state, which has the
    same name. So a world calls a state that no disk took, since part of another was there, which
    nobody could complete."""
    parent = new.parent
    if parent is None or parent.lineage != old.lineage or parent.step >= old.step:
        return False
    return (new.job, new.step, new.stamp) == (old.job, old.step, old.stamp)


@dataclass(frozen=True, slots=True)
class Stored:
    """What one node has of a checkpoint: the manifest, and the shards there with the right size."""

    manifest: Manifest
    held: tuple[int, ...]


def encode(manifest: Manifest) -> bytes:
    """The manifest's file. Equal manifests have equal bytes.

    Raises:
        StateError: the manifest contradicts itself.
    """
    _check(manifest, "manifest")
    m = manifest
    fields = {
        "job": m.job,
        "lineage": m.lineage,
        "parent": None if m.parent is None else [m.parent.lineage, m.parent.step, m.parent.stamp],
        "step": m.step,
        "stamp": m.stamp,
        "generation": [m.generation.counter, m.generation.leader, m.generation.nonce],
        "samples": m.samples,
        "micro": m.micro,
        "count": m.count,
        "shards": [[shard.index, shard.bytes, shard.digest] for shard in m.shards],
        "holders": [list(nodes) for nodes in m.holders],
        "digest": m.digest,
        "created_seconds": float(m.created_seconds),
    }
    if m.metric is not None:
        fields["metric"] = float(m.metric)
    if m.last:
        fields["last"] = True
    if m.agreed:
        fields["agreed"] = True
    body = _pack(fields)
    return _pack({"version": VERSION, "check": _digest(body), "body": body})


def decode(data: bytes, where: str = "manifest") -> Manifest:
    """Read what :func:`encode` wrote; ``where`` begins the message of an error.

    Raises:
        StateError: it is cut, changed, of another version, or contradicts itself.
    """
    envelope = _fields(_unpack(data, where), {"version": int}, where)
    if envelope["version"] != VERSION:
        raise StateError(f"{where}: version {envelope['version']}, this program reads {VERSION}")
    envelope = _fields(envelope, {"version": int, "check": bytes, "body": bytes}, where)
    if _digest(envelope["body"]) != envelope["check"]:
        raise StateError(f"{where}: its digest does not fit its content")
    body = _unpack(envelope["body"], where)
    # Manifests of earlier versions, and of jobs that keep no best, have none.
    metric = body.pop("metric", None) if isinstance(body, dict) else None
    if metric is not None and type(metric) is not float:
        raise StateError(f"{where}: metric has the wrong type")
    last, agreed = _flag(body, "last", where), _flag(body, "agreed", where)
    fields = _fields(body, _KINDS, where)
    parent = fields["parent"]
    try:
        manifest = Manifest(
            job=JobId(fields["job"]),
            lineage=Lineage(fields["lineage"]),
            parent=None if parent is None else Point(*_row(parent, str, int, str)),
            step=fields["step"],
            stamp=Stamp(fields["stamp"]),
            generation=Tag(*_row(fields["generation"], int, str, str)),
            samples=fields["samples"],
            micro=fields["micro"],
            count=fields["count"],
            shards=tuple(Shard(*_row(row, int, int, str)) for row in fields["shards"]),
            holders=tuple(_nodes(row) for row in fields["holders"]),
            digest=fields["digest"],
            created_seconds=fields["created_seconds"],
            metric=metric,
            last=last,
            agreed=agreed,
        )
    except ValueError as error:
        raise StateError(f"{where}: {error}") from None
    _check(manifest, where)
    return manifest


_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("job", "lineage", "stamp", "digest"), str),
    **dict.fromkeys(("step", "samples", "micro", "count"), int),
    **dict.fromkeys(("generation", "shards", "holders"), list),
    "parent": (list, type(None)),
    "created_seconds": float,
}


def _check(manifest: Manifest, where: str) -> None:
    m = manifest
    problems = {
        "lineage and stamp must not be empty": not (m.lineage and m.stamp),
        f"a job's id is {OF_JOB_ID}": not is_job_id(m.job),
        "step and samples count from 0": m.step < 0 or m.samples < 0,
        "micro and count are at least 1": m.micro < 1 or m.count < 1,
        "stamp and digest are lower-case hex": not all(
            set(text) <= _HEX for text in (m.stamp, m.digest)
        ),
        f"needs shards 0 to {m.count - 1} in order": (
            [shard.index for shard in m.shards] != list(range(m.count))
        ),
        "a shard's bytes count from 0": any(shard.bytes < 0 for shard in m.shards),
        "a shard's digest has 64 hex digits": not all(is_digest(s.digest) for s in m.shards),
        "needs the holders of every shard": len(m.holders) != m.count or not all(m.holders),
        "a shard's holders are different nodes": any(
            len(set(nodes)) != len(nodes) or not all(nodes) for nodes in m.holders
        ),
    }
    for problem, found in problems.items():
        if found:
            raise StateError(f"{where}: {problem}")


def _pack(value: object) -> bytes:
    packed = msgpack.packb(value, use_bin_type=True)
    assert isinstance(packed, bytes)
    return packed


def _unpack(data: bytes, where: str) -> object:
    if len(data) > MAX_BYTES:
        raise StateError(f"{where}: {len(data)} bytes are too many")
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=True)
    except (ValueError, msgpack.UnpackException) as error:
        raise StateError(f"{where}: cut or not msgpack: {error or type(error).__name__}") from None


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


def _fields(
    value: object,
    kinds: Mapping[str, type | tuple[type, ...]],
    where: str,
) -> dict[str, Any]:
    """The map, if it has all that ``kinds`` names; a later version may write more."""
    if not isinstance(value, dict):
        raise StateError(f"{where}: not a map")
    if absent := sorted(kinds.keys() - value.keys()):
        raise StateError(f"{where}: missing: {', '.join(absent)}")
    for name, kind in kinds.items():
        item = value.get(name)
        if not isinstance(item, kind) or isinstance(item, bool):
            raise StateError(f"{where}: {name} has the wrong type")
    return value


def _flag(body: object, name: str, where: str) -> bool:
    """One that earlier versions don't write, nor those who don't set it."""
    found = body.pop(name, False) if isinstance(body, dict) else False
    if type(found) is not bool:
        raise StateError(f"{where}: {name} has the wrong type")
    return found


def _row(row: object, *kinds: type) -> Sequence[Any]:
    if (
        not isinstance(row, list)
        or len(row) != len(kinds)
        or any(type(item) is not kind for item, kind in zip(row, kinds, strict=True))
    ):
        raise ValueError(f"{row!r} is not a list of {', '.join(kind.__name__ for kind in kinds)}")
    return row


def _nodes(row: object) -> tuple[NodeId, ...]:
    if not isinstance(row, list) or not all(isinstance(item, str) for item in row):
        raise ValueError(f"{row!r} is not a list of nodes")
    if wrong := [item for item in row if not is_node_id(item)]:
        raise ValueError(f"{wrong[0][:80]!r} is no node's id: {OF_NODE_ID}")
    return tuple(NodeId(item) for item in row)
