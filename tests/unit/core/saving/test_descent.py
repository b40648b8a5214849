"""Which checkpoints are of the line that is trained."""

from __future__ import annotations

from dataclasses import replace

from elasticd.checkpoints.manifest import Stored
from elasticd.core.saving.descent import Descent
from elasticd.core.words.shards import (
    ManifestStore,
)
from elasticd.types import Lineage, Point
from tests.unit.core.saving.desk import GENERATION, LINE, STAMP, A, B, C, Desk, world_of


def test_an_older_checkpoint_does_not_replace_a_newer_one() -> None:
    desk = Desk()
    for step in (20, 10):
        for node in (A, B):
            desk.wrote(node, 0, 1, step=step)
            desk.asked(ManifestStore)
        for node in (A, B):
            desk.stored(node, step)
    assert desk.announced() == [20]


def test_a_cut_is_completed_until_a_later_world_has_cut_the_state_otherwise() -> None:
    """Simulator, seeds 1795529653402 and 1795529655949: it was forgotten who had written the first
    cut; a copy of it was heard of later, and the last checkpoint waited for the writer for 60 s."""
    later = replace(GENERATION, counter=GENERATION.counter + 1)
    desk = Desk(replicas=3)
    desk.form(A, B)
    desk.wrote(A, 0, count=1)
    assert not desk.made.survey.covers(Point(LINE, 10, STAMP), None)
    desk.wrote(B, 0, count=1)
    desk.wrote(B, 0, count=2, generation=later)
    (left,) = desk.made.open.values()
    assert (left.key.count, left.generation) == (2, later)
    desk.wrote(C, 0, count=1)
    assert list(desk.made.open) == [left.key], "a copy of what counts no more"
    again = Desk(replicas=3)
    again.form(A, B)
    again.wrote(A, 0, count=1)
    assert not again.made.survey.covers(Point(LINE, 10, STAMP), None)
    for node in (B, C):
        again.wrote(node, 0, count=1)
    assert again.asked(ManifestStore) == [A, B, C]


def test_an_answer_about_another_cut_of_the_state_counts_for_nothing() -> None:
    """Simulator, seed 5028: the world shrank while a node stored what the larger one had cut."""
    desk = Desk(A, replicas=1)
    desk.wrote(A, 0, count=1)
    desk.stored(A, count=2)
    assert desk.announced() == []
    desk.stored(A, count=1)
    assert desk.announced() == [10]


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
    assert desk.made.survey.covers(Point(Lineage("22"), 10, STAMP), second.parent)
    twin = replace(second, lineage=Lineage("33"))
    assert desk.made.survey.covers(Point(twin.lineage, 10, STAMP), twin.parent)
    other = Point(Lineage("44"), 10, STAMP)
    assert not desk.made.survey.covers(Point(Lineage("55"), 10, STAMP), other), (
        "it never counts there"
    )
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
    assert desk.made.open == {}


def test_a_later_leader_knows_what_is_spoilt_on_both_sides() -> None:
    """Simulator, seed 1303882: two sides had gone on from a step to which the odd one had added,
    and all went back before it. Whoever leads next restores neither side's checkpoints."""
    aside, back = Lineage("22"), Lineage("33")
    first = replace(world_of(A), lineage=aside, parent=Point(LINE, 5, STAMP), step=5)
    descent = Descent()
    descent.enter(first)
    descent.spoil(Point(LINE, 0, STAMP))
    assert descent.is_of_spoilt(first) and descent.is_of_spoilt(world_of(A, B))
    new = replace(world_of(A, B), lineage=back, parent=Point(LINE, 0, STAMP), step=0)
    assert not descent.is_of_spoilt(new)
    later = Descent()
    later.enter(replace(new, spoilt=descent.spoilt))
    assert later.is_spoilt(aside, 10) and later.is_spoilt(LINE, 5)
    assert not later.is_spoilt(LINE, 0) and not later.is_spoilt(back, 7)


def test_who_differs_on_another_side_spoils_what_that_one_has_made() -> None:
    """Simulator, seed 2618020: the leader took its own line for the one on which they differed, and
    went on with the sums of the odd one."""
    own, theirs = Lineage("22"), Lineage("33")
    fork = Point(LINE, 5, STAMP)
    ours = replace(world_of(A), lineage=own, parent=fork, step=5)
    other = replace(world_of(B, C), lineage=theirs, parent=fork, step=5, rung="regroup")
    ten, six = Point(own, 10, STAMP), Point(theirs, 6, STAMP)
    descent = Descent()
    descent.enter(ours)
    assert descent.agreed([fork, ten, six], 12) == ten
    assert descent.agreed([fork, ten, six], 12, other) == six
    assert descent.agreed([fork, ten], 12, other) == fork
    descent.spoil(six, other)
    assert descent.is_spoilt(theirs, 7) and not descent.is_spoilt(theirs, 6)
    assert not descent.is_spoilt(own, 11) and not descent.is_of_spoilt(ours)
    descent.spoil(fork, other)
    assert descent.is_spoilt(theirs, 6) and not descent.is_spoilt(own, 11)


def test_what_is_spoilt_elsewhere_stays_so_though_a_world_goes_on_with_what_is_spoilt() -> None:
    """Two sides have gone on from a spoilt step, and nothing but one's checkpoint is there."""
    aside, other, back = Lineage("22"), Lineage("33"), Lineage("44")
    spoilt = ((LINE, 5), (aside, -1), (other, -1))
    descent = Descent()
    assert descent.recall(spoilt) and not descent.recall(spoilt)
    descent.enter(replace(world_of(A), lineage=aside, parent=Point(LINE, 8, STAMP), step=9))
    assert descent.spoilt == ((other, -1),)
    descent.enter(replace(world_of(A), lineage=back, parent=Point(aside, 9, STAMP), step=9))
    assert not descent.recall(spoilt), "it has gone through the rest"
    assert descent.spoilt == ((other, -1),) and not descent.is_spoilt(LINE, 8)
