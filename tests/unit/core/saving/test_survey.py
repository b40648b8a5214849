"""What a leader knows of states by what disks and writers have told of their checkpoints."""

from __future__ import annotations

from dataclasses import replace

from elasticd.checkpoints.manifest import Stored
from elasticd.core.words.records import View
from elasticd.core.words.shards import PullShards
from elasticd.types import Lineage, NodeId, Point, Tag
from tests.unit.core.saving.desk import LINE, STAMP, A, B, C, Desk, world_of

TEN = Point(LINE, 10, STAMP)


def test_the_same_state_is_not_cut_twice() -> None:
    """Two cuts of one state would be one folder on disk: the first that is stored stands."""
    desk = Desk()
    desk.wrote(A, 0, 1)
    desk.wrote(B, 0, 1)
    point = Point(LINE, 10, STAMP)
    assert desk.made.survey.covers(point, None)
    fresh = Desk()
    fresh.wrote(A, 0)
    assert not fresh.made.survey.covers(replace(point, lineage=Lineage("22")), point)


def test_a_state_is_written_again_as_it_was_cut_before() -> None:
    """Simulator, seed 337: the last state was cut in three, one shard went with its node, and the
    two disks that had the manifest took no other cut."""
    desk = Desk(replicas=1)
    point = Point(LINE, 10, STAMP)
    assert desk.made.survey.cut_of(point) == 0
    for index, node in enumerate((A, B, C)):
        desk.wrote(node, index, count=3)
    assert desk.made.survey.cut_of(point) == 3, "they are storing it now"
    left = Stored(desk.manifest(), (0,))
    later = Desk()
    later.made.learn({A: (left,), B: ()})
    assert later.made.survey.cut_of(point) == 3
    assert later.made.survey.cut_of(replace(point, lineage=Lineage("22"))) == 0


def test_a_shard_whose_last_copy_is_rotten_is_lost_until_it_is_written_again() -> None:
    desk = Desk()
    desk.wrote(A, 0)
    desk.wrote(B, 1)
    assert desk.asked(PullShards) != []
    desk.copied_rot(C, (1, B))
    assert desk.made.survey.lost(10) and not desk.made.survey.lost(9)
    desk.later(10.0)
    assert desk.asked(PullShards) == [], "from whom?"
    desk.wrote(A, 0, 1)
    assert not desk.made.survey.lost(10)


def test_the_newest_state_that_all_had_alike_is_of_before_the_step_that_differs() -> None:
    desk = Desk()
    desk.form(A, B)
    start = Point(LINE, 0, STAMP)
    assert desk.made.survey.agreed(None, 5) == start, "all were given the same one"
    for node in (A, B):
        desk.wrote(node, 0, 1, check="the same")
    alike = replace(desk.manifest(), agreed=True)
    desk.made.learn({A: (Stored(alike, (0, 1)),), B: (), C: ()})
    assert desk.made.survey.agreed(None, 20) == TEN
    assert desk.made.survey.agreed(replace(TEN, step=15), 20) == replace(TEN, step=15)
    assert desk.made.survey.agreed(None, 10) == start
    apart = replace(alike, agreed=False)
    desk.made.learn({A: (Stored(apart, (0, 1)),), B: (), C: ()})
    assert desk.made.survey.agreed(None, 20) == start


def test_a_state_is_within_reach_with_a_checkpoint_of_it_or_of_before() -> None:
    desk = Desk()
    desk.form(A, B)
    assert not desk.made.survey.reaches(TEN)
    for node in (A, B):
        desk.wrote(node, 0, 1)
    kept = Stored(desk.manifest(), (0,))
    assert not desk.made.survey.reaches(TEN), "it is not stored yet"
    desk.made.learn({A: (kept,), B: (), C: ()})
    assert not desk.made.survey.reaches(TEN), "a shard is missing"
    desk.made.learn({A: (kept,), B: (replace(kept, held=(1,)),), C: ()})
    assert desk.made.survey.reaches(TEN) and desk.made.survey.reaches(replace(TEN, step=30))
    assert not desk.made.survey.reaches(replace(TEN, step=9))


def test_a_state_is_contested_once_nobody_else_has_a_say() -> None:
    desk = Desk()
    desk.form(A, B)
    desk.wrote(A, 0, check="one", digest="1" * 64)
    assert desk.made.survey.contested(10) is None, "B may agree"
    desk.wrote(B, 0, check="another", digest="2" * 64, rows="1")
    found = desk.made.survey.contested(10)
    assert found is not None and found.step == 10
    assert desk.made.survey.contested(9) is None


def test_lineages_of_unfinished_checkpoints_are_known_too() -> None:
    desk = Desk()
    assert desk.made.survey.lineages() == frozenset()
    desk.wrote(A, 0)
    assert desk.made.survey.lineages() == {LINE}


def stored_on(desk: Desk, *nodes: NodeId) -> None:
    """Each has written its shard, and the others have the manifest; the last one not yet."""
    for index, node in enumerate(nodes):
        desk.wrote(node, index, count=len(nodes))
    for node in nodes[:-1]:
        desk.stored(node, count=len(nodes))


def test_a_shard_that_did_not_come_back_with_its_node_is_lost_after_a_while() -> None:
    """Simulator, seed 1795699552173: the job waited for it at its last step, for ever."""
    desk = Desk(replicas=1)
    stored_on(desk, A, B, C)
    desk.made.on_view(View(Tag(2, A, "v"), (A, B)), [C])
    desk.made.advance()
    assert not desk.made.survey.lost(10), "it may have been started again, and come at once"
    desk.later(min(desk.made.errands.deadlines(next(iter(desk.made.open.values())))) - 50.0)
    assert desk.made.survey.lost(10) and not desk.made.survey.lost(9)
    desk.wrote(C, 2, count=3)
    assert not desk.made.survey.lost(10)


def test_while_a_world_writes_a_state_again_nothing_of_it_is_lost() -> None:
    desk = Desk(replicas=1)
    stored_on(desk, A, B, C)
    desk.made.on_view(View(Tag(2, A, "v"), (A, B)), [C])
    desk.later(0.0)
    desk.later(10.0)
    assert desk.made.survey.lost(10)
    again = replace(world_of(A, B), generation=Tag(3, A, "y"), step=10)
    desk.made.enter(again)
    desk.later(0.0)
    desk.failed(A, count=3)
    desk.later(10.0)
    assert not desk.made.survey.lost(10), "they are writing it, or try again on a full disk"
    desk.later(desk.ctx.timing.write_seconds)
    assert desk.made.survey.lost(10), "not once more before that"
    desk.wrote(A, 0, 2, count=3, generation=again.generation)
    assert not desk.made.survey.lost(10)
    desk.made.on_view(View(Tag(3, A, "v"), (B, C)), [A])
    desk.later(0.0)
    assert not desk.made.survey.lost(10), "it is looked for anew"
    desk.later(10.0)
    assert desk.made.survey.lost(10)
