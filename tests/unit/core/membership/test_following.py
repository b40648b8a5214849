"""Which view a node follows, and who is not any more what it was in the one before."""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.words.records import View
from elasticd.types import NO_TAG, Tag

from .peers import ME, VIEW, A, B, C, Hearer

NEXT = View(Tag(6, ME, "w"), VIEW.members)


def test_whoever_the_epoch_names_leads() -> None:
    following = Hearer().liveness.following
    assert following.leading and following.epoch == VIEW.epoch
    hearer = Hearer(replace(VIEW, epoch=Tag(5, A, "v")))
    assert not hearer.liveness.following.leading


def test_a_node_without_a_view_leads_nothing() -> None:
    following = Hearer(None).liveness.following
    assert not following.leading and following.epoch == NO_TAG


def test_who_stayed_as_it_was_is_neither_reborn_nor_has_it_missed_anything() -> None:
    hearer = Hearer()
    hearer.follow(NEXT)
    following = hearer.liveness.following
    assert following.reborn == () and following.missed == ()


def test_a_daemon_that_was_started_again_is_reborn() -> None:
    hearer = Hearer()
    hearer.meet(C, "2")
    hearer.beat(C, VIEW.epoch)
    hearer.liveness.follow(NEXT)
    assert hearer.liveness.following.reborn == (C,)


def test_where_messages_were_given_up_some_were_missed() -> None:
    hearer = Hearer()
    hearer.meet(B, session=1)
    hearer.beat(B, VIEW.epoch)
    hearer.liveness.follow(NEXT)
    assert hearer.liveness.following.reborn == () and hearer.liveness.following.missed == (B,)


def test_so_has_who_followed_another_view() -> None:
    hearer = Hearer()
    hearer.beat(B, Tag(4, A, "old"))
    hearer.liveness.follow(NEXT)
    assert hearer.liveness.following.missed == (B,)


def test_who_comes_for_the_first_time_is_not_reborn() -> None:
    hearer = Hearer(View(VIEW.epoch, (A, B, ME)))
    hearer.meet(C)
    hearer.liveness.follow(NEXT)
    assert hearer.liveness.following.reborn == () and hearer.liveness.following.missed == (C,)


def test_those_who_follow_another_view_are_odd() -> None:
    hearer = Hearer()
    assert hearer.liveness.following.odd() == set()
    hearer.beat(B, Tag(9, A, "other"))
    assert hearer.liveness.following.odd() == {B}


def test_which_view_each_follows_and_whether_it_may_train() -> None:
    hearer = Hearer()
    hearer.beat(B, Tag(9, A, "other"), primary=False)
    following = hearer.liveness.following
    assert following.epoch_of(ME) == VIEW.epoch and following.epoch_of(B) == Tag(9, A, "other")
    assert following.trains(ME) and following.trains(A) and not following.trains(B)
    hearer.liveness.doubt()
    assert following.epoch_of(A) == NO_TAG
    hearer.liveness.follow_none()
    assert not following.trains(ME)
