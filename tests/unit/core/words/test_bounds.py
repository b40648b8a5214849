"""No message outgrows a frame: each collection in one has a bound that somebody has thought of.

A message that is too long is never sent (``Talk.transmit``), and says so in a log alone: what
should follow from it doesn't.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from elasticd.checkpoints.tellable import MOST_BYTES
from elasticd.core.jobs.ended import GROUPS
from elasticd.core.words.codec import Words
from elasticd.core.words.connections import ASIDE
from elasticd.core.words.limits import MAX_REASON_LETTERS, PART_BYTES
from elasticd.core.words.messages import DAEMONS
from elasticd.core.words.trainers import FROM_TRAINER, TO_TRAINER
from elasticd.ipc.frames import MAX_FRAME_BYTES, encode
from elasticd.recovery.unknown import Unknown
from elasticd.types import JobId, NodeId, Printable

MEMBERS = 300
"""More were never tried."""
ARRAYS = 16_000
"""Of a state, with an optimizer's: a model of 100 layers has 1500 of its own."""
LINEAGES = 2_000
"""Each opens when a checkpoint is restored, or a network is cut."""
RANGES = 8
"""Of the samples of a rank."""
FEW = 64
NAME = "n" * 63
TEXT, ARRAY_NAME, DIGEST = "t" * 200, "a" * 100, "d" * 64
PARTS = "sent in parts of 1 MiB"

BOUNDS: dict[str, int | str] = {
    # of members, or of the shards, which are no more
    **dict.fromkeys(
        (
            "View.members", "View.away", "View.heard", "View.voters", "PrimaryView.members",
            "History.attempts", "History.since", "ViewAck.heard", "JobRecord.served",
            "JobRecord.offered", "JobRecord.unfit", "NodesKept.nodes", "World.members",
            "World.sources", "World.hosts", "World.diverged", "World.given", "World.calls",
            "World.unproven", "Wanted.holders", "ShardsFailed.rotten", "ShardsWritten.shards",
            "PullShards.shards", "PullShards.sources", "Manifest.shards", "World.shares",
            "World.shares_now", "World.holders", "World.writers", "GiveWorld.members",
            "GiveWorld.shares", "GiveWorld.shares_now", "GiveWorld.calls", "GiveWorld.addresses",
            "WritePlan.writers", "LoadState.digests", "Newcomers.ranks", "HaveEvents.vector",
            "TrainerWrote.shards", "Manifest.holders", "MemberStatus.paths", "PutOut.serials",
            "NodeInfo.others", "Try.died", "Try.samples",
        ),
        MEMBERS,
    ),
    # of what one node, or one job, has few of
    **dict.fromkeys(
        (
            "JobRecord.passed", "JobRecord.origin", "MemberStatus.faults", "MemberStatus.hosts",
            "Holding.gives", "Holding.calls", "Called.used", "TrainerHolds.gives",
            "TrainerHolds.calls", "Progress.seconds", "Progress.named",
            "TrainerProgress.seconds", "TrainerProgress.named", "NodeInfo.addresses",
            "NodeInfo.notifies",
        ),
        FEW,
    ),
    **dict.fromkeys(
        ("JobRecord.left", "JobRecord.ran", "JobRecord.on_cpu", "World.spoilt"), LINEAGES
    ),
    **dict.fromkeys(
        (
            "TrainerStatus.fingerprint", "Proof.grain", "Proof.body", "TrainerAtRun.fingerprint",
            "TrainerHere.fingerprint", "Samples.digests", "TrainerProves.digests", "Digest.parts",
            "TrainerDigest.parts", "ShardsWritten.parts", "TrainerWrote.parts",
        ),
        ARRAYS,
    ),
    # of a shard; together they are those of the state
    **dict.fromkeys(("ShardsWritten.tensors", "WrittenShard.tensors"), ARRAYS // MEMBERS),
    "World.tried": 2 * FEW,  # at the step that is computed, and at one more
    "MemberStatus.stored": "tellable() takes 1 MiB of them",
    "Stored.held": MEMBERS,
    # one that is alone may be longer than a part: a record, an event
    "Jobs.records": PARTS,
    "Nodes.records": PARTS,
    "TakeEvents.items": PARTS,
    "Jobs.digests": GROUPS,
    "Jobs.wanted": GROUPS,
    "JobsKept.jobs": "those of a part, by their ids",
    # plain maps, as long as a job.toml, a summary, or what a script gives to run.log
    "JobRecord.spec": "one MiB",
    "JobRecord.account": "one MiB",
    "Unknown.fields": "one MiB",
    "Summary.fields": "one MiB",
    "Progress.metrics": "one MiB",
    "TrainerProgress.metrics": "one MiB",
    "Carry.frame": "another message",
}  # fmt: skip
"""How many items each has, or why it is short."""


def _fields(hint: Any, seen: set[type]) -> Iterator[tuple[str, Any]]:
    """The collections of a word and of what is in it."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if hint in seen:
            return
        seen.add(hint)
        hints = typing.get_type_hints(hint)
        for field in dataclasses.fields(hint):
            if _is_collection(hints[field.name]):
                yield f"{hint.__name__}.{field.name}", hints[field.name]
            yield from _fields(hints[field.name], seen)
    for inner in typing.get_args(hint):
        yield from _fields(inner, seen)


def _is_collection(hint: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(map(_is_collection, inner))
    return origin in (dict, list) or (origin is tuple and inner[-1] is Ellipsis)


def longest(hint: Any, where: str = "", count: int = 1) -> Any:
    """A value of that kind at its bound; ``count`` items, and of what is in it few."""
    if hint in (NodeId, JobId):
        return NAME
    hint = getattr(hint, "__supertype__", hint)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is str:
        return "r" * MAX_REASON_LETTERS if where.endswith((".reason", ".text")) else TEXT
    if hint in (int, float, bool, bytes, Any):
        return {int: 1 << 52, float: 0.1, bool: True, bytes: b"b" * 64, Any: None}[hint]
    if hint is Unknown:
        return Unknown()
    if origin is typing.Annotated:
        return "p" * 64 if isinstance(inner[1], Printable) else inner[1].most
    if origin in (typing.Union, types.UnionType):
        return longest([each for each in inner if each is not type(None)][-1], where, count)
    if origin is typing.Literal:
        return max(inner, key=lambda each: len(str(each)))
    if origin is dict:
        return {f"{ARRAY_NAME}{n}": _in_row(inner[1], where) for n in range(count)}
    if origin is tuple and inner[-1] is Ellipsis:
        return (_in_row(inner[0], where),) * count
    if origin is tuple:
        return tuple(longest(each, where) for each in inner)
    assert dataclasses.is_dataclass(hint), hint
    name = typing.cast(type, hint).__name__
    hints = typing.get_type_hints(hint, include_extras=True)
    made = {}
    for field in dataclasses.fields(hint):
        at = f"{name}.{field.name}"
        bound = BOUNDS.get(at, 1)
        made[field.name] = longest(hints[field.name], at, bound if isinstance(bound, int) else 0)
    return typing.cast(Any, hint)(**made)


def _in_row(hint: Any, where: str) -> Any:
    """An item of a collection."""
    if getattr(hint, "__supertype__", hint) is str and hint not in (NodeId, JobId):
        return DIGEST
    if typing.get_args(hint)[:2] == (str, str):
        return ARRAY_NAME, DIGEST
    # Shares are a few ranges a member; holders and writers a few nodes a shard.
    return longest(hint, where, RANGES)


KINDS: list[tuple[Words[Any], type[Any]]] = [
    (words, kind) for words in (DAEMONS, ASIDE, FROM_TRAINER, TO_TRAINER) for kind in words.kinds
]


def test_each_collection_in_a_message_has_a_bound() -> None:
    seen: set[type] = set()
    found = {name for _, kind in KINDS for name, _ in _fields(kind, seen)}
    assert found - BOUNDS.keys() == set(), "say how many there may be"
    assert BOUNDS.keys() - found == set(), "there is none of that name"


@pytest.mark.parametrize(("words", "kind"), KINDS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_message_fits_into_a_frame_with_all_that_may_be_in_it(
    words: Words[Any], kind: type[Any]
) -> None:
    apart = sum(
        {PARTS: PART_BYTES}.get(str(BOUNDS[name]), MOST_BYTES)
        for name, _ in _fields(kind, set())
        if isinstance(BOUNDS[name], str)
    )
    assert len(encode(words.encode(longest(kind)))) + apart < MAX_FRAME_BYTES
