"""The checkpoint to restore from: newest, whole, of the right lineage."""

from __future__ import annotations

from dataclasses import replace

from elasticd.checkpoints.choose import elsewhere, newest
from elasticd.checkpoints.manifest import Manifest, Shard, Stored
from elasticd.types import NO_TAG, JobId, Lineage, NodeId, Point, Stamp

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


def at(step: int, lineage: str = "one", parent: Point | None = None, digest: str = "0") -> Manifest:
    stamp = Stamp(f"{step:08x}{lineage.encode().hex()}")
    shards = tuple(Shard(index, 10, digest * 64) for index in range(3))
    return Manifest(
        *(JobId("job"), Lineage(lineage), parent, step, stamp, NO_TAG, step * 64, 8, 3),
        *(shards, ((A, B), (B, C), (C, A)), "00", 0.0),
    )


def test_newest_that_is_whole() -> None:
    stored = {
        A: [Stored(at(10), (0, 2)), Stored(at(20), (0, 2))],
        B: [Stored(at(10), (0, 1)), Stored(at(20), (0,))],
    }
    choice = newest(stored)
    assert choice is not None and choice.manifest == at(10)
    assert choice.sources == ((A, B), (B,), (A,))
    assert choice.reason.startswith("step 10 of lineage one is the newest whose 3 shards")
    stored[C] = [Stored(at(20), (1,))]
    choice = newest(stored)
    assert choice is not None and choice.manifest == at(20)
    assert choice.sources == ((A, B), (C,), (A,))


def test_nothing_to_restore() -> None:
    assert newest({}) is None
    assert newest({A: []}) is None
    assert newest({A: [Stored(at(10), (0, 1))]}) is None


def test_holders_take_turns() -> None:
    everyone = {node: [Stored(at(10), (0, 1, 2))] for node in (C, A, B)}
    choice = newest(everyone)
    assert choice is not None
    assert choice.sources == ((A, B, C), (B, C, A), (C, A, B))


def test_a_manifest_counts_even_where_its_node_holds_no_shard() -> None:
    choice = newest({A: [Stored(at(10), ())], B: [Stored(at(10), (0, 1, 2))]})
    assert choice is not None and choice.sources == ((B,), (B,), (B,))


def test_shards_with_other_digests_do_not_complete_a_checkpoint() -> None:
    stored = {A: [Stored(at(10), (0, 1))], B: [Stored(at(10, digest="1"), (2,))]}
    assert newest(stored) is None


def test_manifests_that_name_other_holders_are_of_one_checkpoint() -> None:
    fewer = replace(at(10), holders=((A,), (B,), (C,)))
    for one, other in ((fewer, at(10)), (at(10), fewer)):
        choice = newest({A: [Stored(one, (0, 1))], B: [Stored(other, (2,))]})
        assert choice is not None and choice.manifest == at(10)


def test_only_the_line_of_the_lineage() -> None:
    fork = at(20).point
    items = [at(10), at(20), at(30), at(25, "two", fork), at(40, "three", fork)]
    stored = {A: [Stored(m, (0, 1, 2)) for m in items]}

    def step(lineage: str | None, parent: Point | None = None) -> tuple[str, int] | None:
        choice = newest(stored, None if lineage is None else Lineage(lineage), parent)
        return None if choice is None else (choice.manifest.lineage, choice.manifest.step)

    assert step(None) == ("three", 40)
    assert step("one") == ("one", 30)
    assert step("two") == ("two", 25)
    assert step("fresh", fork) == ("one", 20)
    assert step("fresh") is None


def test_an_unreachable_checkpoint_still_says_where_its_lineage_came_from() -> None:
    stored = {A: [Stored(at(20), (0, 1, 2)), Stored(at(25, "two", at(20).point), (0,))]}
    choice = newest(stored, Lineage("two"))
    assert choice is not None and choice.manifest == at(20)


def test_what_only_nodes_that_are_away_can_complete() -> None:
    """After a power cut: who is back first has step 10 alone, and knows that there is a 20."""
    first = {A: [Stored(at(10), (0, 1, 2)), Stored(at(20), (0, 2))]}
    assert elsewhere(first) == 20
    assert elsewhere(first, Lineage("one")) == 20
    assert elsewhere(first, Lineage("two"), at(10).point) == -1, "it is no state of this line"
    both: dict[NodeId, list[Stored]] = {**first, B: [], C: []}
    assert elsewhere(both) == -1, "nobody is away: the shard is lost"
    assert elsewhere({**first, B: [Stored(at(20), (1,))]}) == -1, "it is within reach"
    assert elsewhere({}) == -1
