"""From shards on disks to a checkpoint that is announced, once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.core.context import Context
from elasticd.core.leading.checkpointing import Checkpoints
from elasticd.core.words import effects as e
from elasticd.core.words.records import View, World
from elasticd.core.words.shards import (
    Consistent,
    ManifestStore,
    ManifestStored,
    PullShards,
    ShardsFailed,
    ShardsWritten,
)
from elasticd.settings.job import JobSpec
from elasticd.types import JobId, Lineage, NodeId, Point, Stamp, Tag

A, B, C = (NodeId(name) for name in "abc")
JOB, LINE, STAMP = JobId("job-1-abcd"), Lineage("11"), Stamp("ab" * 16)
GENERATION = Tag(2, A, "x")
FULL = "the disk is full"


def world_of(*members: NodeId) -> World:
    """The world that makes the checkpoints."""
    nothing = ((),) * len(members)
    return World(
        job=JOB, generation=GENERATION, epoch=Tag(1, A, "v"), lineage=LINE, parent=None, step=0,
        stamp=STAMP, members=members, sources=("init",) * len(members), hosts=("",) * len(members),
        shares_now=nothing, shares=nothing, rung="start", reason="", recoveries=0, lost_steps=0,
        exact=True, checkpointed=-1, manifest=None, holders=(),
    )  # fmt: skip


class Desk:
    """Checkpoints of a job on three nodes, and what it asks for."""

    def __init__(self, *members: NodeId, replicas: int = 2, steps: int = 100) -> None:
        spec = JobSpec.from_dict(
            {
                "job": {"name": "job", "entrypoint": "train.py"},
                "batch": {"global": 8, "micro": 1},
                "train": {"steps": steps},
                "checkpoint": {"replicas": replicas},
            }
        )
        self.ctx = Context(A, "a1", lambda: "0000", now=50.0)
        self.made = Checkpoints(self.ctx, JOB, spec, View(Tag(1, A, "v"), members or (A, B, C)))

    def form(self, *members: NodeId) -> None:
        """These make the checkpoints."""
        self.made.enter(world_of(*members))

    def wrote(
        self,
        node: NodeId,
        *indices: int,
        step: int = 10,
        count: int = 2,
        lineage: Lineage = LINE,
        generation: Tag = GENERATION,
        digest: str = "0" * 64,
    ) -> None:
        rows = tuple((index, 100, f"{index:064x}") for index in indices)
        self.made.on_shards(
            node,
            ShardsWritten(JOB, generation, lineage, step, STAMP, count, rows, digest, 0.1, 0.2),
        )
        self.made.advance()

    def failed(self, node: NodeId, step: int = 10, count: int = 2, refused: bool = True) -> None:
        said = ShardsFailed(JOB, GENERATION, LINE, step, STAMP, count, "the disk is full", refused)
        self.made.on_failed(node, said)
        self.made.advance()

    def stored(
        self,
        node: NodeId,
        step: int = 10,
        refusal: str = "",
        lineage: Lineage = LINE,
        count: int = 2,
    ) -> None:
        name = (JOB, lineage, step, STAMP, count)
        said = ManifestStored(*name, not refusal, refusal, refusal == FULL)
        self.made.on_stored(node, said)
        self.made.advance()

    def later(self, seconds: float) -> None:
        self.ctx.now += seconds
        self.made.advance()

    def asked(self, kind: type) -> list[NodeId]:
        """Who was sent a message of a kind since the last time, itself included."""
        sent = [f.to for f in self.ctx.effects if isinstance(f, e.Send) and type(f.message) is kind]
        own = [A for message in self.ctx.inbox if type(message) is kind]
        rest = [f for f in self.ctx.effects if not isinstance(f, e.Send)]
        self.ctx.effects[:] = rest
        self.ctx.inbox.clear()
        return sorted(sent + own)

    def emitted(self, kind: str) -> list[e.Emit]:
        return [f for f in self.ctx.effects if isinstance(f, e.Emit) and f.kind == kind]

    def announced(self) -> list[int]:
        return [emit.fields["step"] for emit in self.emitted("checkpoint_committed")]

    def manifest(self) -> Manifest:
        (entry,) = self.made.entries.values()
        assert entry.manifest is not None
        return entry.manifest


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


def test_what_a_drained_node_holds_is_copied_to_one_that_stays() -> None:
    desk = Desk()
    desk.made.leaving = frozenset({B})
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
    desk.made.leaving = frozenset({A, B, C})
    desk.wrote(A, 0, 1)
    desk.wrote(B, 0, 1)
    kept = Stored(desk.manifest(), (0, 1))
    for node in (A, B, C):
        desk.stored(node)
    desk.asked(PullShards)
    desk.made.learn({A: (kept,), B: (kept,), C: (Stored(kept.manifest, ()),)})
    desk.made.advance()
    assert desk.asked(PullShards) == []


def test_an_older_checkpoint_does_not_replace_a_newer_one() -> None:
    desk = Desk()
    for step in (20, 10):
        for node in (A, B):
            desk.wrote(node, 0, 1, step=step)
            desk.asked(ManifestStore)
        for node in (A, B):
            desk.stored(node, step)
    assert desk.announced() == [20]


def test_the_same_state_is_not_cut_twice() -> None:
    """Two cuts of one state would be one folder on disk: the first that is stored stands."""
    desk = Desk()
    desk.wrote(A, 0, 1)
    desk.wrote(B, 0, 1)
    point = Point(LINE, 10, STAMP)
    assert desk.made.covers(point)
    fresh = Desk()
    fresh.wrote(A, 0)
    assert not fresh.made.covers(replace(point, lineage=Lineage("22")))
    assert fresh.made.entries == {}, "its files will be written over"


def test_an_answer_about_another_cut_of_the_state_counts_for_nothing() -> None:
    """Simulator, seed 5028: the world shrank while a node stored what the larger one had cut."""
    desk = Desk(A, replicas=1)
    desk.wrote(A, 0, count=1)
    desk.stored(A, count=2)
    assert desk.announced() == []
    desk.stored(A, count=1)
    assert desk.announced() == [10]


def test_a_state_is_written_again_as_it_was_cut_before() -> None:
    """Simulator, seed 337: the last state was cut in three, one shard went with its node, and the
    two disks that had the manifest took no other cut."""
    desk = Desk(replicas=1)
    point = Point(LINE, 10, STAMP)
    assert desk.made.cut_of(point) == 0
    for index, node in enumerate((A, B, C)):
        desk.wrote(node, index, count=3)
    assert desk.made.cut_of(point) == 3, "they are storing it now"
    left = Stored(desk.manifest(), (0,))
    later = Desk()
    later.made.learn({A: (left,), B: ()})
    assert later.made.cut_of(point) == 3
    assert later.made.cut_of(replace(point, lineage=Lineage("22"))) == 0


def test_what_a_restore_has_left_does_not_stand_in_the_way() -> None:
    """Step 20 was committed, but its shards were away when the job went back to step 10."""
    desk = Desk()
    for step in (10, 20):
        for node in (A, B):
            desk.wrote(node, 0, 1, step=step)
        if step == 10:
            base = Stored(desk.manifest(), (0, 1))
        else:
            left = Stored(desk.manifest(), (0, 1))
        for node in (A, B):
            desk.stored(node, step)
    assert desk.made.newest == left.manifest
    desk.made.learn({A: (base,), C: ()})
    second = replace(world_of(A, C), lineage=Lineage("22"), parent=Point(LINE, 10, STAMP))
    desk.made.enter(replace(second, step=10, manifest=base.manifest))
    assert desk.made.newest is not None and desk.made.newest.point == Point(LINE, 10, STAMP)
    assert desk.made.covers(Point(Lineage("22"), 10, STAMP))
    # The node that has step 20 is back, and has shards of it.
    desk.made.learn({A: (base,), B: (base, left), C: ()})
    desk.wrote(B, 0, 1, step=20)
    desk.wrote(A, 0, 1, step=20)
    assert desk.made.newest.step == 10
    for step in (15, 20):
        for node in (A, C):
            desk.wrote(node, 0, 1, step=step, lineage=Lineage("22"))
        for node in (A, C):
            desk.stored(node, step, lineage=Lineage("22"))
    assert desk.announced() == [10, 20, 15, 20]
    assert desk.made.newest.lineage == "22"


def test_a_new_leader_drops_a_restored_job_s_abandoned_checkpoints_too() -> None:
    first = Desk()
    for node in (A, B):
        first.wrote(node, 0, 1, step=20)
    left = Stored(first.manifest(), (0, 1))
    desk = Desk()
    desk.made.learn({A: (left,), B: (left,), C: ()})
    assert desk.made.newest == left.manifest
    desk.made.enter(replace(world_of(A, B), lineage=Lineage("22"), parent=Point(LINE, 10, STAMP)))
    assert desk.made.newest is None
    desk.wrote(A, 0, 1, step=20)
    assert desk.made.entries == {}


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
