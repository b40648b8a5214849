"""Disks that refuse, hang, go or are drained: where the replicas of a checkpoint are instead."""

from __future__ import annotations

import pytest

from elasticd.checkpoints.manifest import Stored
from elasticd.core.jobs.nodes import NodeDuties
from elasticd.core.words import effects as e
from elasticd.core.words.records import View
from elasticd.core.words.shards import (
    ManifestStore,
    PullShards,
)
from elasticd.types import NodeId, Tag
from tests.unit.core.saving.desk import FULL, A, B, C, Desk

OWN = "c" * 64
"""The check of a state of one's own."""


def test_beside_a_world_of_one_others_copy_the_shards() -> None:
    desk = Desk()
    desk.wrote(A, 0, count=1)
    assert desk.asked(PullShards) == [B]
    desk.failed(B, count=1, refused=False)
    assert desk.asked(PullShards) == [], "after a failure there is a pause"
    desk.wrote(B, 0, count=1)
    assert desk.asked(ManifestStore) == [A, B, C]


def test_a_node_that_is_gone_holds_nothing() -> None:
    desk = Desk()
    desk.wrote(A, 0, 1)
    desk.wrote(B, 0, 1)
    desk.stored(A)
    desk.made.on_view(View(Tag(3, A, "w"), (A, C)), [B])
    desk.asked(PullShards)
    desk.made.advance()
    assert desk.announced() == []
    assert desk.asked(PullShards) == [C]
    desk.wrote(C, 0, 1)
    desk.asked(ManifestStore)
    desk.stored(A)
    desk.stored(C)
    assert desk.announced() == [10]


@pytest.mark.parametrize(("step", "announced"), [(10, []), (100, [100])])
def test_only_the_last_checkpoint_makes_do_with_nodes_that_know_it_by_another_name(
    step: int, announced: list[int]
) -> None:
    desk = Desk(A, B)
    desk.wrote(A, 0, 1, step=step)
    desk.wrote(B, 0, 1, step=step)
    desk.stored(B, step, "another state is committed there")
    desk.stored(A, step)
    assert desk.announced() == announced


def test_who_is_to_copy_is_not_asked_again_when_it_tells_once_more_what_it_has_written() -> None:
    desk = Desk()
    desk.form(A, B, C)
    for node, *indices in ((A, 0, 2), (B, 0, 1), (C, 1, 2)):
        desk.wrote(node, *indices, count=3, check=OWN)
    desk.made.on_view(View(Tag(3, A, "w"), (A, B)), [C])
    desk.asked(ManifestStore)
    desk.made.advance()
    assert desk.asked(PullShards) == [A]
    desk.wrote(A, 0, 2, count=3, check=OWN)
    assert desk.asked(PullShards) == [], "its copy is on its way"
    desk.wrote(A, 0, 1, 2, count=3)
    assert desk.asked(PullShards) == [B]
    desk.wrote(B, 0, 1, 2, count=3)
    assert desk.asked(ManifestStore) == [A, B]


def test_a_leader_that_knows_no_world_hears_that_the_script_stops_there() -> None:
    """Whoever knew it has lost its journal, say; all that is left are shards."""
    desk = Desk()
    desk.wrote(A, 0, 1, check=OWN, last=True)
    (pull,) = (f.message for f in desk.ctx.effects if isinstance(f, e.Send))
    assert isinstance(pull, PullShards) and pull.last, "and so does who copies them"
    desk.wrote(B, 0, 1, last=True)
    made = desk.made.open
    assert [one.manifest is not None and one.manifest.last for one in made.values()] == [True]


def test_what_a_full_disk_refuses_is_copied_elsewhere() -> None:
    desk = Desk()
    desk.form(A, B)
    desk.wrote(A, 0, 1)
    assert desk.asked(PullShards) == [], "B still writes"
    desk.failed(B)
    assert desk.asked(PullShards) == [C]
    desk.wrote(C, 0, 1)
    assert desk.asked(ManifestStore) == [A, C]
    desk.stored(A)
    desk.stored(C)
    (made,) = desk.emitted("checkpoint_committed")
    assert made.fields["replicas"] == 2 and made.reason == "step 10 is consistent"
    (refused,) = desk.emitted("checkpoint_refused")
    assert refused.reason == "b does not store its part of step 10: the disk is full"


def test_with_no_other_disk_there_are_fewer_replicas_and_it_is_said() -> None:
    desk = Desk(A, B)
    desk.form(A, B)
    desk.wrote(A, 0, 1)
    desk.failed(B)
    desk.stored(A)
    (made,) = desk.emitted("checkpoint_committed")
    assert made.fields["replicas"] == 1
    assert made.reason == "step 10 is consistent, with 1 of 2 replicas (b: the disk is full)"
    desk.wrote(A, 0, 1, step=20)
    desk.wrote(B, 0, 1, step=20)
    desk.stored(A, 20)
    assert desk.announced() == [10], "B's disk may have room again"
    desk.stored(B, 20)
    assert desk.announced() == [10, 20]


def test_a_disk_that_refuses_the_manifest_is_done_without() -> None:
    desk = Desk()
    desk.form(A, B)
    desk.wrote(A, 0, 1)
    desk.wrote(B, 0, 1)
    desk.asked(ManifestStore)
    desk.stored(A)
    desk.stored(B, refusal=FULL)
    assert desk.asked(PullShards) == [C]
    desk.wrote(C, 0, 1)
    desk.stored(A)
    desk.stored(C)
    assert desk.announced() == [10]


def test_a_full_disk_that_alone_has_a_shard_is_asked_again_for_its_manifest() -> None:
    desk = Desk(A, B, replicas=1)
    desk.wrote(A, 0)
    desk.wrote(B, 1)
    desk.asked(ManifestStore)
    desk.stored(A)
    for _ in range(3):
        desk.stored(B, refusal=FULL)
        assert desk.asked(ManifestStore) == [], "not at once"
        assert min(t for t in desk.made.deadlines() if t > desk.ctx.now) < desk.ctx.now + 2
        desk.later(1.5)
        assert desk.asked(ManifestStore) == [B]
    assert len(desk.emitted("checkpoint_refused")) == 1
    desk.stored(B)
    assert desk.announced() == [10]


@pytest.mark.parametrize("ends_at", [10, 100])
def test_whose_shards_another_state_has_taken_the_place_of_gets_a_copy(ends_at: int) -> None:
    desk = Desk(A, B, steps=ends_at)
    desk.form(A, B)
    desk.wrote(A, 0, 1)
    desk.wrote(B, 0, 1)
    assert desk.asked(ManifestStore) == [A, B]
    desk.stored(A)
    desk.stored(B, refusal="shard 0 is of another state", lacks=True)
    assert desk.announced() == [] and desk.asked(PullShards) == [], "not at once"
    desk.later(1.5)
    assert desk.asked(PullShards) == [B]
    desk.wrote(B, 0, 1)
    assert desk.asked(ManifestStore) == [B]
    desk.stored(B)
    (made,) = desk.emitted("checkpoint_committed")
    assert made.fields["replicas"] == 2


def test_who_lacks_them_again_and_again_is_done_without() -> None:
    desk = Desk(A, B, steps=10)
    desk.form(A, B)
    desk.wrote(A, 0, 1)
    desk.wrote(B, 0, 1)
    desk.stored(A)
    for _ in range(4):
        assert desk.announced() == []
        desk.stored(B, refusal="shard 0 is missing", lacks=True)
        desk.later(1.5)
        if desk.asked(PullShards) == [B]:
            desk.wrote(B, 0, 1)
    desk.stored(A)  # the manifest that doesn't name B
    (made,) = desk.emitted("checkpoint_committed")
    assert made.fields["replicas"] == 1


def test_a_late_writer_that_skips_gets_a_copy() -> None:
    desk = Desk(A, B)
    desk.form(A, B)
    desk.wrote(A, 0, 1)
    desk.failed(B, refused=False)
    assert desk.asked(PullShards) == [B]
    assert desk.emitted("checkpoint_refused") == []


def test_a_disk_that_hangs_is_not_waited_for_for_ever() -> None:
    desk = Desk()
    desk.form(A, B)
    desk.wrote(A, 0, 1)
    limit = desk.ctx.timing.write_seconds
    assert desk.ctx.now + limit in desk.made.deadlines()
    desk.later(limit)
    assert desk.asked(PullShards) == [C]
    desk.wrote(C, 0, 1)
    desk.stored(A)
    assert desk.announced() == []
    desk.later(limit)
    desk.stored(A)
    assert desk.announced() == [10], "C's disk hangs too"
    reasons = [emit.reason for emit in desk.emitted("checkpoint_refused")]
    assert reasons == [
        "b does not store its part of step 10: it has not written its shards in 60 s",
        "c does not store its part of step 10: it has not stored the manifest in 60 s",
    ]


def test_a_copy_that_went_with_its_node_is_made_again() -> None:
    desk = Desk()
    desk.wrote(A, 0, 1)
    desk.wrote(B, 0, 1)
    kept = Stored(desk.manifest(), (0, 1))
    for node in (A, B, C):
        desk.stored(node)
    desk.made.on_view(View(Tag(3, A, "w"), (A, C)), [B])
    desk.asked(ManifestStore)
    desk.made.advance()
    assert desk.asked(PullShards) == [], "nobody has said yet what it has"
    empty = Stored(kept.manifest, ())
    desk.made.learn({A: (kept,), C: (empty,)})
    desk.made.advance()
    assert desk.asked(PullShards) == [C]
    desk.made.learn({A: (kept,), C: (kept,)})
    desk.wrote(C, 0, 1)
    assert desk.asked(ManifestStore) == [A, C], "its holders are others now"
    assert desk.made.newest is not None and desk.made.newest.holders == ((A, C), (A, C))
    desk.stored(A)
    desk.stored(C)
    assert desk.announced() == [10], "it is the same checkpoint"
    desk.made.learn({A: (kept,), C: ()})
    desk.made.advance()
    assert desk.asked(PullShards) == [C], "somebody removed the folder by hand"


@pytest.mark.parametrize("stores", [frozenset[NodeId](), frozenset({B})])
def test_what_a_drained_node_holds_is_copied_to_one_that_stays(stores: frozenset[NodeId]) -> None:
    desk = Desk()
    desk.made.place(NodeDuties(stores=stores, leaving=frozenset({B})))
    desk.wrote(A, 0, 1)
    desk.wrote(B, 0, 1)
    kept = Stored(desk.manifest(), (0, 1))
    for node in (A, B, C):
        desk.stored(node)
    assert desk.announced() == [10], "it survives the loss of any one node"
    desk.asked(PullShards)
    desk.made.learn({A: (kept,), B: (kept,), C: (Stored(kept.manifest, ()),)})
    desk.made.advance()
    assert desk.asked(PullShards) == [C]
    desk.wrote(C, 0, 1)
    assert desk.made.newest is not None and desk.made.newest.holders == ((A, B, C), (A, B, C))
    for node in (A, B, C):
        desk.stored(node)
    desk.made.advance()
    assert desk.asked(PullShards) == []
    assert desk.announced() == [10]


def test_where_all_are_drained_nothing_is_copied() -> None:
    desk = Desk()
    desk.made.place(NodeDuties(leaving=frozenset({A, B, C})))
    desk.wrote(A, 0, 1)
    desk.wrote(B, 0, 1)
    kept = Stored(desk.manifest(), (0, 1))
    for node in (A, B, C):
        desk.stored(node)
    desk.asked(PullShards)
    desk.made.learn({A: (kept,), B: (kept,), C: (Stored(kept.manifest, ()),)})
    desk.made.advance()
    assert desk.asked(PullShards) == []


def test_a_node_whose_disk_takes_no_copy_keeps_what_it_has_written() -> None:
    desk = Desk(replicas=2)
    desk.form(A, B)
    desk.wrote(A, 0)
    desk.wrote(B, 1)
    for node in (C, A):
        assert desk.asked(PullShards) == [node]
        desk.failed(node)
        desk.later(1.1)
    assert desk.asked(ManifestStore) == [A, B]
    desk.stored(A)
    desk.stored(B)
    assert desk.announced() == [10]


def test_a_node_of_another_failure_domain_gets_the_copy() -> None:
    desk = Desk()
    for node, domain in ((A, "strip 1"), (B, "strip 1"), (C, "strip 2")):
        desk.made.locate(node, domain)
    desk.wrote(A, 0, 1)
    assert desk.asked(PullShards) == [C]


def test_a_store_is_asked_for_copies_first_and_a_witness_never() -> None:
    desk = Desk()
    desk.form(A)
    desk.made.place(NodeDuties(stores=frozenset({C})))
    desk.wrote(A, 0, 1)
    desk.made.advance()
    assert desk.asked(PullShards) == [C]
    desk = Desk()
    desk.form(A)
    desk.made.place(NodeDuties(witnesses=frozenset({B})))
    desk.wrote(A, 0, 1)
    desk.made.advance()
    assert desk.asked(PullShards) == [C]
    desk.wrote(C, 0, 1)
    assert desk.asked(ManifestStore) == [A, C]


def test_a_witness_does_not_count_among_those_that_can_hold_a_copy() -> None:
    desk = Desk(A, B)
    desk.form(A)
    desk.made.place(NodeDuties(witnesses=frozenset({B})))
    desk.wrote(A, 0, 1)
    desk.stored(A)
    assert desk.announced() == [10]


def test_the_world_writes_what_its_stores_do_not_copy() -> None:
    desk = Desk(replicas=3)
    made = desk.made
    for node in (A, B, C):
        made.locate(node, "")
    assert made.replicas.written([A]) == 3
    made.place(NodeDuties(stores=frozenset({C})))
    assert made.replicas.written([A, B]) == 2
    made.place(NodeDuties(stores=frozenset({B, C}), leaving=frozenset({C})))
    assert made.replicas.written([A]) == 2
    made.place(NodeDuties(stores=frozenset({A, B, C})))
    assert made.replicas.written([]) == 1


@pytest.mark.parametrize(
    ("domains", "written"),
    [(("desk", "shelf", "shelf"), 2), (("desk", "desk", "shelf"), 1), (("desk",) * 3, 1)],
)
def test_a_store_that_fails_with_a_member_spares_the_others_nothing(
    domains: tuple[str, ...], written: int
) -> None:
    desk = Desk(replicas=2)
    desk.made.place(NodeDuties(stores=frozenset({C})))
    for node, domain in zip((A, B, C), domains, strict=True):
        assert desk.made.replicas.written([A, B]) == 2, "nothing is known of it yet"
        desk.made.locate(node, domain)
    assert desk.made.replicas.written([A, B]) == written
