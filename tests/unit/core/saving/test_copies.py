"""Counting which node has which shard."""

from __future__ import annotations

from elasticd.core.saving.copies import ShardCopies
from elasticd.types import NodeId

A, B, C = (NodeId(name) for name in "abc")


def copies(**held: tuple[int, ...]) -> ShardCopies:
    made = ShardCopies(2)
    for node, indices in held.items():
        made.add(NodeId(node), indices)
    return made


def test_the_least_held_shard_counts() -> None:
    made = copies(a=(0, 1), b=(0,))
    assert made.fewest({A, B, C}) == 1
    assert made.fewest({B, C}) == 0
    assert made.whole
    assert not copies(a=(0,)).whole


def test_a_holder_that_no_manifest_names_does_not_count() -> None:
    made = copies(a=(0, 1), b=(0, 1))
    assert made.named(((A, B), (A,)), {A, B}) == 1
    assert made.named(((A, C), (A, C)), {B, C}) == 0


def test_what_a_node_reports_replaces_what_was_known_of_it() -> None:
    made = copies(a=(0, 1), b=(0,))
    made.put(B, (1,))
    assert made.listed() == ((A,), (A, B))
    assert made.needs(A) and not made.needs(B)
    made.drop(A)
    assert made.has(B) and not made.has(A)
    assert made.listed() == ((), (B,))


def test_shards_that_were_written_otherwise_are_not_a_manifest_s() -> None:
    made = copies()
    assert made.same(0, (100, "x"))
    assert not made.same(0, (100, "y"))
    assert not made.settle({0: (100, "y"), 1: (100, "z")})
    assert made.settle({0: (100, "x"), 1: (100, "z")})
    assert made.table() == ((0, 100, "x"), (1, 100, "z"))
