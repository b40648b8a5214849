"""Manifests come back whole, or are refused."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import msgpack
import pytest

from elasticd.checkpoints.manifest import Manifest, Shard, decode, encode
from elasticd.errors import StateError
from elasticd.types import JobId, Lineage, NodeId, Point, Stamp, Tag

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
MANIFEST = Manifest(
    job=JobId("digits-1-k3f9"),
    lineage=Lineage("two"),
    parent=Point(Lineage("one"), 20, Stamp("ab")),
    step=30,
    stamp=Stamp("abcdef0123456789"),
    generation=Tag(4, A, "nonce"),
    samples=1920,
    micro=8,
    count=2,
    shards=(Shard(0, 100, "0" * 64), Shard(1, 0, "f" * 64)),
    holders=((A, B), (B, C, A)),
    digest="d" * 64,
    created_seconds=1.5e9,
)


def test_comes_back() -> None:
    assert decode(encode(MANIFEST)) == MANIFEST
    orphan = replace(MANIFEST, parent=None)
    assert decode(encode(orphan)) == orphan
    flagged = replace(MANIFEST, last=True, agreed=True)
    assert decode(encode(flagged)) == flagged
    whole = replace(MANIFEST, created_seconds=3)
    assert encode(decode(encode(whole))) == encode(whole)


def test_what_it_says() -> None:
    assert MANIFEST.point == Point(Lineage("two"), 30, Stamp("abcdef0123456789"))
    assert (MANIFEST.bytes, MANIFEST.replicas) == (100, 2)
    assert [MANIFEST.held_by(node) for node in (A, B, C, NodeId("d"))] == [(0, 1), (0, 1), (1,), ()]
    assert MANIFEST.same_state(replace(MANIFEST, holders=((A,), (A,)), created_seconds=0.0))
    assert not MANIFEST.same_state(replace(MANIFEST, step=31))


def test_every_cut_and_every_flipped_byte_is_refused() -> None:
    data = encode(MANIFEST)
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 0x41
        for broken in (data[:place], bytes(flipped)):
            with pytest.raises(StateError, match=r"^here: "):
                decode(broken, "here")
    with pytest.raises(StateError):
        decode(data + b"\0")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"job": ""}, "a job.s id is"),
        ({"job": "../other"}, "a job.s id is"),
        ({"stamp": ""}, "must not be empty"),
        ({"step": -1}, "count from 0"),
        ({"samples": -1}, "count from 0"),
        ({"micro": 0}, "at least 1"),
        ({"count": 0, "shards": (), "holders": ()}, "at least 1"),
        ({"stamp": "xyz"}, "lower-case hex"),
        ({"digest": "DD"}, "lower-case hex"),
        ({"count": 3}, "needs shards 0 to 2"),
        ({"shards": MANIFEST.shards[::-1]}, "needs shards 0 to 1"),
        ({"shards": (Shard(0, -1, "0" * 64), MANIFEST.shards[1])}, "bytes count from 0"),
        ({"shards": (Shard(0, 1, "0" * 63), MANIFEST.shards[1])}, "64 hex digits"),
        ({"holders": ((A,), ())}, "needs the holders"),
        ({"holders": ((A,),)}, "needs the holders"),
        ({"holders": ((A,), (B, B))}, "different nodes"),
        ({"holders": ((A,), (NodeId(""),))}, "different nodes"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(StateError, match=message):
        encode(replace(MANIFEST, **changes))  # type: ignore[arg-type]


def _with_fields(**changes: object) -> bytes:
    """A manifest whose digest fits but whose fields are changed; None removes one."""
    fields = msgpack.unpackb(msgpack.unpackb(encode(MANIFEST))["body"])
    fields |= changes
    body = msgpack.packb({name: value for name, value in fields.items() if value != "gone"})
    check = hashlib.blake2b(body, digest_size=16).digest()
    return bytes(msgpack.packb({"version": 1, "check": check, "body": body}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": "gone"}, "manifest: missing: step"),
        ({"step": "3"}, "step has the wrong type"),
        ({"step": True}, "step has the wrong type"),
        ({"created_seconds": 3}, "created_seconds has the wrong type"),
        ({"parent": ["one", 2]}, "is not a list of str, int, str"),
        ({"generation": [1, "a", 3]}, "is not a list of int, str, str"),
        ({"shards": [[0, 1, "a", 2]]}, "is not a list of int, int, str"),
        ({"shards": [3]}, "is not a list of int, int, str"),
        ({"holders": [["a"], [3]]}, "is not a list of nodes"),
        ({"micro": 0}, "at least 1"),
    ],
)
def test_wrong_fields_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(StateError, match=message):
        decode(_with_fields(**changes))


def test_what_a_later_version_adds_is_passed_over() -> None:
    assert decode(_with_fields(extra=1)) == MANIFEST


def test_another_version_is_named() -> None:
    with pytest.raises(StateError, match="version 2, this program reads 1"):
        decode(msgpack.packb({"version": 2, "new": "things"}))
    for data in (msgpack.packb(3), msgpack.packb({"version": 1}), b"", bytes(17 << 20)):
        with pytest.raises(StateError):
            decode(data)


def test_a_figure_comes_back_and_manifests_without_one_have_none() -> None:
    with_figure = replace(MANIFEST, metric=0.25)
    assert decode(encode(with_figure)) == with_figure
    assert decode(encode(MANIFEST)).metric is None
    assert encode(MANIFEST) != encode(with_figure)
