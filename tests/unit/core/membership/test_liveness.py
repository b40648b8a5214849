"""Which peers live, as one node hears it: by silence, by closed connections, by what others say."""

from __future__ import annotations

import pytest

from elasticd.core.words.views import Heartbeat, Leaving
from elasticd.types import NO_TAG

from .peers import ME, START, VIEW, A, B, C, Hearer


def test_a_peer_lives_while_it_is_heard() -> None:
    hearer = Hearer()
    hearer.wait(30.0, A, B, C)
    assert hearer.living == (A, B, C, ME)


def test_a_peer_that_is_silent_for_too_long_is_dead() -> None:
    hearer = Hearer()
    timing = hearer.ctx.timing
    hearer.wait(timing.silent_floor_seconds - 0.25, A, B)
    assert C in hearer.living
    hearer.wait(timing.silent_seconds, A, B)
    assert hearer.living == (A, B, ME) and hearer.abandoned[-1] == C
    assert "silent for" in hearer.ctx.departures.farewell(C)
    assert hearer.ctx.departures.seen_at(C, hearer.ctx.now) == START, "it was last heard then"


def test_it_lives_again_once_it_speaks() -> None:
    hearer = Hearer()
    hearer.wait(3.0, A, B)
    assert hearer.liveness.heard(C)
    assert C in hearer.living
    assert not hearer.liveness.heard(C), "it is no news any more"


def test_a_closed_connection_makes_a_suspect_and_after_a_while_a_dead_node() -> None:
    hearer = Hearer()
    hearer.part(C)
    assert hearer.liveness.suspects() == [C] and hearer.liveness.state_of(C) == "suspect"
    hearer.wait(hearer.ctx.timing.return_seconds - 0.25, A, B)
    assert C in hearer.living
    hearer.wait(0.25, A, B)
    assert hearer.liveness.state_of(C) == "dead"
    assert hearer.ctx.departures.seen_at(C, 0.0) == START


def test_the_same_run_on_another_connection_was_never_away() -> None:
    hearer = Hearer()
    hearer.abandoned.clear()
    hearer.part(C)
    hearer.wait(1.0, A, B)
    hearer.meet(C)
    assert hearer.liveness.suspects() == [] and hearer.abandoned == []


@pytest.mark.parametrize(("run", "session"), [("2", 0), ("1", 1)])
def test_another_run_or_lost_messages_make_it_another_peer(run: str, session: int) -> None:
    """What it was asked in the old one it can't answer any more."""
    hearer = Hearer()
    hearer.abandoned.clear()
    hearer.meet(C, run, session)
    assert hearer.abandoned == [C]
    assert hearer.liveness.peers[C].epoch is None, "it has yet to say which view it follows"


def test_of_an_older_run_nothing_is_believed() -> None:
    hearer = Hearer()
    hearer.meet(C, "2")
    hearer.part(C, "1")
    assert hearer.liveness.suspects() == []


@pytest.mark.parametrize("first", ["the connection", "the witness"])
def test_a_closed_connection_and_a_second_witness_make_a_dead_node_at_once(first: str) -> None:
    hearer = Hearer()
    if first == "the connection":
        hearer.part(C)
        assert hearer.liveness.confirm_dead(C, "its ring broke too")
    else:
        assert not hearer.liveness.confirm_dead(C, "its ring broke too")
        assert C in hearer.living, "one witness kills nobody"
        hearer.part(C)
    assert C not in hearer.living
    assert hearer.ctx.departures.farewell(C).endswith("closed; its ring broke too")


def test_a_witness_of_long_ago_counts_no_more() -> None:
    hearer = Hearer()
    hearer.liveness.confirm_dead(C, "its ring broke too")
    hearer.wait(hearer.ctx.timing.return_seconds, A, B, C)
    hearer.part(C)
    assert C in hearer.living


def test_what_third_nodes_say_of_a_silent_peer_is_told_with_its_death() -> None:
    hearer = Hearer()
    hearer.liveness.hearsay(C, "a does not hear it either")
    hearer.wait(3.0, A, B)
    assert hearer.ctx.departures.farewell(C).endswith("a does not hear it either")


def test_who_comes_and_goes_is_let_in_later_and_who_was_started_again_is_not() -> None:
    hearer = Hearer()
    for _ in range(3):
        hearer.wait(3.0, A, B)
        hearer.liveness.heard(C)
    assert hearer.liveness.damping.admit_at(C) > hearer.ctx.now
    hearer.wait(3.0, A, B)
    hearer.meet(C, "2")
    hearer.wait(3.0, A, B)
    hearer.liveness.heard(C)
    assert hearer.liveness.damping.admit_at(C) <= hearer.ctx.now, "that is its first time"


# --- going on purpose -----------------------------------------------------------------------------


def test_who_says_that_it_leaves_is_gone_at_once_and_not_held_for_lost() -> None:
    hearer = Hearer()
    hearer.liveness.departs(C, "drained")
    assert C not in hearer.living and hearer.ctx.departures.farewell(C).endswith("drained")
    assert hearer.ctx.departures.on_purpose == {C}
    assert not hearer.liveness.heard(C), "what it says meanwhile does not bring it back"
    assert C not in hearer.living


def test_a_heartbeat_of_one_that_left_takes_that_back() -> None:
    hearer = Hearer()
    hearer.liveness.departs(C, "drained")
    hearer.beat(C)
    assert C in hearer.living and not hearer.ctx.departures.on_purpose


def test_a_node_that_leaves_tells_everyone_and_hears_nobody() -> None:
    hearer = Hearer()
    hearer.liveness.leave("its daemon is being stopped")
    assert [node for node, _ in hearer.sent(Leaving)] == [A, B, C]
    assert hearer.living == (ME,) and hearer.liveness.following.view is None
    hearer.beat(A)
    hearer.meet(B, "2")
    hearer.wait(5.0)
    assert hearer.living == (ME,) and hearer.sent(Heartbeat) == []
    assert [node for node, _ in hearer.sent(Leaving)] == [B], "it has yet to hear of it"


def test_a_node_that_stays_after_all_meets_everyone_anew() -> None:
    hearer = Hearer()
    hearer.liveness.leave("its daemon is being stopped")
    hearer.ctx.effects.clear()
    hearer.liveness.stay()
    assert hearer.living == (A, B, C, ME)
    assert [node for node, _ in hearer.sent(Heartbeat)] == [A, B, C]


# --- views ----------------------------------------------------------------------------------------


def test_a_view_in_doubt_is_asked_of_everyone() -> None:
    hearer = Hearer()
    assert {peer.epoch for peer in hearer.liveness.peers.values()} == {VIEW.epoch}
    hearer.liveness.doubt()
    assert {peer.epoch for peer in hearer.liveness.peers.values()} == {None}


def test_heartbeats_say_which_view_is_followed_and_whether_it_may_train() -> None:
    hearer = Hearer()
    hearer.wait(0.25)
    beats = hearer.sent(Heartbeat)
    assert {node for node, _ in beats} == {A, B, C}
    assert {(beat.epoch, beat.primary) for _, beat in beats} == {(VIEW.epoch, True)}
    hearer.liveness.follow_none()
    hearer.wait(0.25)
    assert {beat.epoch for _, beat in hearer.sent(Heartbeat)} == {NO_TAG}


def test_a_suspect_gets_no_heartbeats() -> None:
    hearer = Hearer()
    hearer.part(C)
    hearer.wait(0.25)
    assert {node for node, _ in hearer.sent(Heartbeat)} == {A, B}


def test_to_the_dead_that_are_connected_a_heartbeat_goes_now_and_then() -> None:
    """So both notice when they hear each other again."""
    hearer = Hearer()
    hearer.wait(3.0, A, B)
    hearer.sent(Heartbeat)
    hearer.wait(5.0, A, B)
    told = [node for node, _ in hearer.sent(Heartbeat)]
    assert 0 < told.count(C) <= told.count(A) // 3


def test_who_left_a_question_open_is_waited_for_less_long() -> None:
    hearer, other = Hearer(), Hearer()
    hearer.liveness.press(C)
    for each in (hearer, other):
        each.wait(1.25, A, B)
    assert C not in hearer.living and C in other.living
