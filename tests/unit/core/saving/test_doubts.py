"""What a member wrote whose state is not the others' is no part of a checkpoint."""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.saving.checkpoint import Checkpoint
from elasticd.core.words.records import World
from elasticd.core.words.shards import ManifestStore, PullShards
from elasticd.types import NodeId, Tag

from .desk import GENERATION, A, B, C, Desk, world_of

NEXT = Tag(GENERATION.counter + 1, A, "n")
GOOD, BAD = "0", "f"


def later(*members: NodeId) -> World:
    """The next world, into which its members take their states."""
    return replace(world_of(*members), generation=NEXT, sources=("keep",) * len(members))


def desk() -> Desk:
    made = Desk(replicas=3)
    made.form(A, B, C)
    return made


def wrote(made: Desk, node: NodeId, rows: str) -> None:
    """What it has itself."""
    made.wrote(node, 0, 1, rows=rows, check=rows)


def only(made: Desk) -> Checkpoint:
    (checkpoint,) = made.made.open.values()
    return checkpoint


def shards(made: Desk) -> set[str]:
    """What the digests of the shards that count begin with."""
    return {digest[0] for _, digest in only(made).copies.rows.values()}


def test_the_first_to_speak_is_outvoted() -> None:
    made = desk()
    wrote(made, A, BAD)
    wrote(made, B, GOOD)
    assert not made.asked(PullShards) and not only(made).complete, "one against one"
    wrote(made, C, GOOD)
    assert shards(made) == {GOOD} and only(made).copies.nodes() == {B, C}
    assert made.asked(PullShards) == [A]
    made.wrote(A, 0, 1, rows=GOOD)
    assert made.asked(ManifestStore) == [A, B, C]


def test_who_is_found_to_have_diverged_counts_no_more() -> None:
    made = desk()
    wrote(made, A, BAD)
    made.made.doubt([A], GENERATION)
    assert not only(made).copies.rows
    wrote(made, B, GOOD)
    wrote(made, C, GOOD)
    assert shards(made) == {GOOD} and only(made).copies.nodes() == {B, C}


def test_what_it_says_later_counts_no_more() -> None:
    made = desk()
    made.made.doubt([A], GENERATION)
    wrote(made, A, BAD)
    wrote(made, B, GOOD)
    wrote(made, C, GOOD)
    assert shards(made) == {GOOD} and made.asked(PullShards) == [A]


def test_nor_does_a_copy_of_what_it_wrote() -> None:
    made = desk()
    wrote(made, A, BAD)
    made.failed(B, refused=False)
    made.failed(C, refused=False)
    assert made.asked(PullShards) == [B, C]
    made.made.doubt([A], GENERATION)
    made.wrote(B, 0, 1, rows=BAD)
    assert not only(made).copies.rows


def test_who_could_not_copy_that_is_asked_again() -> None:
    made = desk()
    wrote(made, A, BAD)
    made.failed(B, refused=False)
    made.failed(C, refused=False)
    made.made.doubt([A], GENERATION)
    wrote(made, C, GOOD)
    made.failed(B, refused=False)
    made.later(10.0)
    assert B in made.asked(PullShards)
    made.wrote(B, 0, 1, rows=GOOD)
    assert only(made).copies.nodes() == {B, C}


def test_in_a_later_world_it_counts_again() -> None:
    made = desk()
    made.made.doubt([A], GENERATION)
    made.wrote(A, 0, 1, generation=NEXT, check=GOOD)
    assert only(made).copies.nodes() == {A}


def test_nothing_is_copied_while_a_survivor_of_the_world_may_still_write() -> None:
    made = desk()
    wrote(made, A, BAD)
    made.made.enter(later(A, B))
    made.later(0.1)
    assert not made.asked(PullShards), "B kept its state, and writes yet"
    wrote(made, B, GOOD)
    assert not made.asked(PullShards) and not only(made).complete


def test_who_was_given_another_state_writes_nothing_more() -> None:
    made = desk()
    wrote(made, A, GOOD)
    wrote(made, B, GOOD)
    made.made.enter(replace(later(A, B, C), sources=("keep", "keep", "peer:a")))
    made.later(0.1)
    assert made.asked(PullShards) == [C]


def test_who_writes_over_its_shards_with_another_state_holds_them_no_more() -> None:
    """B wrote what the manifest has, and writes again in a later world, before it has stored the
    manifest: its file is not what a restore wants."""
    made = Desk(A, B, C)
    made.form(A, B)
    for node in (A, B):
        made.wrote(node, 0, 1, check=GOOD)
    made.asked(ManifestStore)
    made.wrote(B, 0, 1, generation=NEXT, rows=BAD, check=BAD)
    assert only(made).copies.listed() == ((A,), (A,))
    for node in (A, B):
        made.stored(node)
    assert made.announced() == []
