"""From shards on disks to a checkpoint that is announced, once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.core import effects as e
from elasticd.core.checkpointing import Checkpoints
from elasticd.core.context import Context
from elasticd.core.messages import ManifestStore, ManifestStored, PullShards, ShardsWritten, View
from elasticd.job import JobSpec
from elasticd.types import JobId, Lineage, NodeId, Point, Stamp, Tag

A, B, C = (NodeId(name) for name in "abc")
JOB, LINE, STAMP = JobId("job-1-abcd"), Lineage("11"), Stamp("ab" * 16)
GENERATION = Tag(2, A, "x")


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

    def wrote(self, node: NodeId, *indices: int, step: int = 10, count: int = 2) -> None:
        rows = tuple((index, 100, f"{index:064x}") for index in indices)
        self.made.on_shards(
            node,
            ShardsWritten(JOB, GENERATION, LINE, step, STAMP, count, rows, "0" * 64, 0.1, 0.2),
        )
        self.made.advance()

    def stored(self, node: NodeId, step: int = 10, ok: bool = True) -> None:
        reason = "" if ok else "the disk is full"
        self.made.on_stored(node, ManifestStored(JOB, step, STAMP, ok, reason))
        self.made.advance()

    def asked(self, kind: type) -> list[NodeId]:
        """Who was sent a message of a kind since the last time, itself included."""
        sent = [f.to for f in self.ctx.effects if isinstance(f, e.Send) and type(f.message) is kind]
        own = [A for message in self.ctx.inbox if type(message) is kind]
        rest = [f for f in self.ctx.effects if not isinstance(f, e.Send)]
        self.ctx.effects[:] = rest
        self.ctx.inbox.clear()
        return sorted(sent + own)

    def announced(self) -> list[int]:
        emits = [f for f in self.ctx.effects if isinstance(f, e.Emit)]
        return [f.fields["step"] for f in emits if f.kind == "checkpoint_committed"]

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
    desk.stored(B)
    assert desk.announced() == [10]
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


def test_beside_a_world_of_one_others_copy_the_shards() -> None:
    desk = Desk()
    desk.wrote(A, 0, count=1)
    assert desk.asked(PullShards) == [B]
    desk.wrote(A, count=1)
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
def test_only_the_last_checkpoint_makes_do_with_disks_that_work(
    step: int, announced: list[int]
) -> None:
    desk = Desk(A, B)
    desk.wrote(A, 0, 1, step=step)
    desk.wrote(B, 0, 1, step=step)
    desk.stored(B, step, ok=False)
    desk.stored(A, step)
    assert desk.announced() == announced


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
