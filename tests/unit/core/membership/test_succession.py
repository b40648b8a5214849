"""When another view is due, who is in it, and who proposes it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core.membership.succession import Succession
from elasticd.core.words.records import View
from elasticd.types import NO_TAG, NodeId, Tag

from .peers import CROWD, MANY, ME, START, VIEW, A, B, C, Hearer


def succession_of(hearer: Hearer, expected: int = 3) -> Succession:
    made = Succession(hearer.ctx, hearer.liveness, expected)
    made.start()
    made.formed()
    return made


def due(succession: Succession, promised: Tag = VIEW.epoch) -> tuple[NodeId, ...]:
    return succession.due(promised, in_haste=False)


def alone(*peers: NodeId) -> Hearer:
    """A node that was just started, and has met these, which follow no view either."""
    hearer = Hearer(None)
    for node in peers:
        hearer.meet(node)
        hearer.beat(node)
    return hearer


# --- the first view -------------------------------------------------------------------------------


def test_a_view_is_due_at_once_when_all_are_there_whom_the_configuration_names() -> None:
    assert due(succession_of(alone(A, B, C))) == (A, B, C, ME)


def test_for_those_who_are_missing_it_waits_a_while() -> None:
    hearer = alone(A)
    succession = succession_of(hearer)
    assert due(succession) == ()
    assert START + hearer.ctx.timing.settle_seconds in succession.deadlines()
    hearer.ctx.now += hearer.ctx.timing.settle_seconds
    assert due(succession) == (A, ME)


def test_a_view_that_was_given_up_is_followed_without_waiting() -> None:
    assert succession_of(alone(A)).due(NO_TAG, in_haste=True) == (A, ME)


def test_nothing_is_due_while_it_is_open_whether_somebody_lives() -> None:
    hearer = alone(A, B, C)
    hearer.part(C)
    assert due(succession_of(hearer)) == ()


def test_nor_before_each_has_said_which_view_it_follows() -> None:
    hearer = alone(A, B)
    hearer.meet(C)
    succession = succession_of(hearer)
    assert due(succession) == ()
    hearer.beat(C)
    assert due(succession) == (A, B, C, ME)


def test_a_node_that_goes_proposes_nothing() -> None:
    succession = succession_of(alone(A, B, C))
    succession.stop()
    assert due(succession) == () and succession.deadlines() == []


# --- the next one ---------------------------------------------------------------------------------


def test_no_other_view_is_due_while_all_is_well() -> None:
    assert due(succession_of(Hearer())) == ()


def test_another_is_due_without_who_is_dead_and_with_who_has_come() -> None:
    hearer = Hearer()
    succession = succession_of(hearer)
    hearer.liveness.departs(C, "drained")
    assert due(succession) == (A, B, ME)
    hearer = Hearer(View(VIEW.epoch, (A, ME)))
    succession = succession_of(hearer)
    hearer.meet(B)
    hearer.beat(B)
    assert due(succession) == (A, B, ME)


def test_while_another_node_leads_and_lives_it_is_for_that_to_propose() -> None:
    theirs = replace(VIEW, epoch=Tag(5, A, "v"))
    hearer = Hearer(theirs)
    succession = succession_of(hearer)
    hearer.liveness.departs(C, "drained")
    assert due(succession, theirs.epoch) == ()
    hearer.liveness.departs(A, "drained")
    assert due(succession, theirs.epoch) == (B, ME)


def test_a_member_whose_daemon_was_started_again_is_in_no_view() -> None:
    hearer = Hearer()
    succession = succession_of(hearer)
    hearer.meet(C, "2")
    hearer.beat(C, NO_TAG)
    assert due(succession) == VIEW.members


def test_a_member_that_follows_another_view_is_given_time_to_follow_ours() -> None:
    hearer = Hearer()
    succession = succession_of(hearer)
    hearer.beat(C, Tag(4, A, "old"))
    assert due(succession) == ()
    hearer.ctx.now += hearer.ctx.timing.ballot_seconds
    assert due(succession) == VIEW.members


def test_a_leader_that_was_started_again_leads_nobody() -> None:
    theirs = replace(VIEW, epoch=Tag(5, A, "v"))
    hearer = Hearer(theirs)
    succession = succession_of(hearer)
    hearer.meet(A, "2")
    hearer.beat(A, NO_TAG)
    assert due(succession, theirs.epoch) == VIEW.members


def test_a_leader_that_follows_a_newer_view_than_we_were_asked_about_has_gone() -> None:
    theirs, newer = replace(VIEW, epoch=Tag(5, A, "v")), Tag(8, B, "n")
    hearer = Hearer(theirs)
    succession = succession_of(hearer)
    hearer.beat(A, newer)
    assert due(succession, newer) == (), "we have promised that one, and will be told"
    succession.look_again()
    assert due(succession, theirs.epoch) == VIEW.members
    assert succession.deserted(A, theirs.epoch) and not succession.deserted(A, newer)


def test_who_came_and_went_too_often_is_not_let_in_for_a_while() -> None:
    hearer = Hearer(View(VIEW.epoch, (A, B, ME)))
    for _ in range(3):
        hearer.liveness.damping.flapped(C, START)
    succession = succession_of(hearer)
    hearer.meet(C)
    hearer.beat(C)
    assert succession.on_probation(C) and due(succession) == ()
    hearer.ctx.now = hearer.liveness.damping.admit_at(C)
    assert due(succession) == VIEW.members


def test_who_is_in_the_view_is_not_on_probation() -> None:
    hearer = Hearer()
    for _ in range(3):
        hearer.liveness.damping.flapped(C, START)
    assert not succession_of(hearer).on_probation(C)


def test_while_somebody_was_charged_just_now_others_may_follow() -> None:
    hearer = Hearer(CROWD)
    succession = succession_of(hearer)
    hearer.liveness.departs(MANY[0], "drained")
    hearer.liveness.circle.charge(MANY[1], MANY[2], START, 2.0)
    assert due(succession) == ()
    hearer.ctx.now += 0.5
    assert len(due(succession)) == len(CROWD.members) - 1


# --- who ------------------------------------------------------------------------------------------


def test_the_leader_of_the_newest_view_proposes_the_next_one() -> None:
    hearer = Hearer()
    hearer.beat(B, Tag(9, B, "newer"))
    assert succession_of(hearer).proposer(VIEW.members) == B


def test_if_it_is_gone_the_first_of_that_view_does() -> None:
    hearer = Hearer()
    for node in (B, C):
        hearer.beat(node, Tag(9, NodeId("gone"), "newer"))
    assert succession_of(hearer).proposer(VIEW.members) == B


def test_a_leader_that_came_back_from_a_crash_is_in_no_view() -> None:
    hearer = Hearer()
    newer = Tag(9, B, "newer")
    hearer.beat(C, newer)
    hearer.beat(B, NO_TAG)
    assert succession_of(hearer).proposer(VIEW.members) == C


def test_who_may_train_is_not_disturbed_by_a_newer_view_that_may_not() -> None:
    hearer = Hearer()
    hearer.beat(B, Tag(9, B, "newer"), primary=False)
    assert succession_of(hearer).proposer(VIEW.members) == ME


def test_where_nobody_follows_a_view_the_first_by_name_proposes() -> None:
    assert succession_of(alone(A, B, C)).proposer((A, B, C, ME)) == A


@pytest.mark.parametrize(("waited", "early"), [(0.0, True), (5.9, True), (6.0, False)])
def test_a_node_is_early_for_twice_the_time_it_looks_for_others(waited: float, early: bool) -> None:
    hearer = alone()
    succession = succession_of(hearer)
    hearer.ctx.now += waited
    assert succession.is_early is early
