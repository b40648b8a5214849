"""From shards on disks to a checkpoint that is announced, once."""

from __future__ import annotations

from dataclasses import replace

from elasticd.checkpoints.manifest import Stored
from elasticd.core.words.effects import Send
from elasticd.core.words.shards import (
    Consistent,
    ManifestStore,
    PullShards,
)
from elasticd.types import NodeId, Point, Tag
from tests.unit.core.saving.desk import GENERATION, LINE, STAMP, A, B, C, Desk


def test_announced_once_everything_is_on_its_replicas() -> None:
    desk = Desk()
    desk.wrote(A, 0, 1)
    assert desk.asked(ManifestStore) == []
    desk.wrote(B, 0, 1)
    assert desk.asked(ManifestStore) == [A, B, C]
    desk.stored(A)
    assert desk.announced() == []
    assert desk.asked(Consistent) == [], "older ones must stay until then"
    desk.stored(B)
    assert desk.announced() == [10]
    assert desk.asked(Consistent) == [A, B, C]
    desk.stored(C)
    assert desk.announced() == [10]
    assert desk.made.newest is not None and desk.made.newest.point == Point(LINE, 10, STAMP)


def test_its_manifest_says_whether_all_members_had_that_state() -> None:
    for words, alike in (({B: "0"}, True), ({}, False)):
        desk = Desk()
        desk.form(A, B)
        for node, check in {A: "0", **words}.items():
            desk.wrote(node, 0, 1, check=check)
        if not words:
            desk.failed(B)
            desk.wrote(C, 0, 1)
        assert desk.manifest().agreed is alike


def test_a_manifest_on_a_node_without_shards_does_not_count() -> None:
    desk = Desk()
    desk.wrote(A, 0, 1)
    desk.wrote(B, 0, 1)
    desk.stored(A)
    desk.stored(C)
    assert desk.announced() == []


def test_a_report_of_what_is_stored_does_not_swallow_the_announcement() -> None:
    desk = Desk()
    desk.wrote(A, 0, 1)
    desk.wrote(B, 0, 1)
    kept = (Stored(desk.manifest(), (0, 1)),)
    desk.made.learn({A: kept, B: kept, C: ()})
    desk.made.advance()
    assert desk.announced() == [10]


def test_what_a_node_has_no_more_does_not_count_though_a_newer_one_is_whole() -> None:
    desk = Desk()
    desk.form(A, B, C)
    made: dict[int, Stored] = {}
    for step in (10, 20):
        desk.wrote(A, 0, 1, step=step)
        desk.wrote(B, 0, step=step)
        desk.wrote(C, 1, step=step)
        (manifest,) = [e.manifest for e in desk.made.open.values() if e.step == step]
        assert manifest is not None
        made[step] = Stored(manifest, (0, 1))
        desk.stored(A, step=step)
    desk.made.learn({A: tuple(made.values()), B: (), C: ()})
    desk.made.learn({A: (made[20],), B: (), C: ()})
    for node in (B, C):
        desk.stored(node, step=10)
    assert desk.announced() == [], "without B or C a shard of it is nowhere"


def test_what_an_earlier_leader_has_finished_is_known_without_a_word() -> None:
    first = Desk()
    first.wrote(A, 0, 1)
    first.wrote(B, 0, 1)
    kept = (Stored(first.manifest(), (0, 1)),)
    second = Desk()
    second.made.learn({A: kept, B: kept, C: ()})
    second.made.advance()
    assert second.announced() == []
    assert second.made.newest == kept[0].manifest


def test_what_an_earlier_leader_has_begun_is_finished() -> None:
    first = Desk()
    first.wrote(A, 0, 1)
    first.wrote(B, 0, 1)
    kept = (Stored(first.manifest(), (0, 1)),)
    second = Desk()
    second.made.learn({A: kept, B: (), C: ()})
    second.made.advance()
    assert second.asked(PullShards) == [B], "B's shards were not told of again, so it copies them"
    second.wrote(B, 0, 1)
    assert B in second.asked(ManifestStore)
    second.stored(B)
    assert second.announced() == [10]


def test_what_one_disk_has_and_what_another_node_has_written_make_a_checkpoint() -> None:
    first = Desk(replicas=1)
    first.wrote(A, 0)
    first.wrote(B, 1)
    desk = Desk(replicas=1)
    desk.form(A)
    desk.made.learn({A: (Stored(first.manifest(), (0,)),), B: (), C: ()})
    desk.wrote(B, 1)
    assert desk.asked(ManifestStore) == [B, C], "A has it"
    desk.stored(B)
    assert desk.announced() == [10]


def test_a_world_that_writes_a_state_again_needs_nothing_of_what_was_written_before() -> None:
    desk, later = Desk(), replace(GENERATION, counter=3)
    desk.wrote(A, 0, 1, digest="1" * 64)
    desk.wrote(B, 0, 1)
    assert len(desk.emitted("fault_detected")) == 2, "A's shards differ from B's"
    desk.wrote(A, 0, 1, generation=later)
    desk.wrote(C, 0, 1, digest="1" * 64)
    desk.wrote(B, 0, 1, generation=later)
    assert len(desk.emitted("fault_detected")) == 2
    desk.stored(A)
    desk.stored(B)
    assert desk.announced() == [10]


def test_what_is_announced_is_on_the_disks_under_the_same_generation() -> None:
    """The world after the one that made a checkpoint wrote it again, then its leader went."""
    first = Desk()
    first.wrote(A, 0, 1)
    first.wrote(B, 0, 1)
    kept = (Stored(replace(first.manifest(), holders=((A, B, NodeId("d")),) * 2), (0, 1)),)
    second = Desk()
    second.wrote(A, 0, 1, generation=Tag(4, C, "y"))
    for _ in range(2):
        second.made.learn({A: kept, B: kept, C: ()})
        second.made.advance()
    assert [emit.generation for emit in second.emitted("checkpoint_committed")] == [2]


def test_a_manifest_on_a_disk_outweighs_what_somebody_wrote_otherwise() -> None:
    """C had diverged and leads now; nobody could complete what C has written."""
    first = Desk(replicas=3)
    first.wrote(A, 0, 1)
    first.wrote(B, 0, 1)
    first.wrote(C, 0, 1)
    kept = (Stored(first.manifest(), (0, 1)),)
    second = Desk(replicas=3)
    second.wrote(C, 0, 1, rows="f")
    second.asked(PullShards)
    second.made.learn({A: kept, B: kept, C: ()})
    second.made.advance()
    assert second.asked(PullShards) == [C]
    second.wrote(C, 0, 1)
    second.stored(C)
    assert second.announced() == [10]


def test_a_shard_of_which_another_copy_is_there_is_not_lost() -> None:
    desk = Desk(replicas=3)
    desk.wrote(A, 0, 1)
    desk.wrote(B, 1)
    desk.copied_rot(C, (1, B))
    assert not desk.made.survey.lost(10)
    desk.later(10.0)
    sent = [f.message for f in desk.ctx.effects if isinstance(f, Send)]
    pulls = [message for message in sent if isinstance(message, PullShards)]
    assert pulls[-1].sources == ((A,), (A,)), "who gave a rotten one is not asked for it again"
