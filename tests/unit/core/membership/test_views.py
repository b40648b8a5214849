"""Views, between a few machines that talk without delay."""

from __future__ import annotations

import pytest

from elasticd.core.words import effects as e
from elasticd.core.words.views import Leaving, ViewForm, ViewPropose
from elasticd.types import NodeId

from .wires import Wires

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


def views_of(wires: Wires, name: NodeId) -> list[str]:
    """What a node has journalled of views, in order."""
    return [kind for who, kind in wires.journal if who == name and kind != "node"]


def test_nodes_that_meet_share_a_view_at_once() -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    assert set(wires.views().values()) == {(A, B, C)}
    assert len(wires.epochs()) == 1


def test_an_attempt_is_journalled_before_it_is_answered_and_before_it_is_formed() -> None:
    wires = Wires(A, B)
    wires.connect(A, B)
    for name in (A, B):
        assert views_of(wires, name) == [
            "view_attempt",
            "view_formed",
        ]


def test_a_node_that_is_missing_is_waited_for_only_so_long() -> None:
    wires = Wires(A, B, expected=2)
    wires.connect(A, B)
    assert set(wires.views().values()) == {()}
    wires.wait(3.1)
    assert set(wires.views().values()) == {(A, B)}


def test_a_node_that_comes_later_joins_under_the_same_leader() -> None:
    wires = Wires(B, C, expected=2)
    wires.connect(B, C)
    wires.wait(3.1)
    wires.start(A)
    wires.connect(A, B, C)
    assert set(wires.views().values()) == {(A, B, C)}
    assert {node.views.epoch.leader for node in wires.nodes.values()} == {B}


def test_a_node_whose_connection_closed_is_left_out_after_two_seconds() -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    wires.kill(C)
    wires.wait(1.9)
    assert set(wires.views().values()) == {(A, B, C)}
    wires.wait(0.2)
    assert set(wires.views().values()) == {(A, B)}


def test_a_daemon_that_comes_back_in_time_costs_no_member() -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    wires.disconnect(C)
    wires.wait(1.0)
    wires.connect(A, C)
    wires.connect(B, C)
    wires.wait(3.0)
    assert set(wires.views().values()) == {(A, B, C)}


def test_the_next_node_leads_when_the_leader_dies() -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    wires.kill(A)
    wires.wait(2.1)
    assert set(wires.views().values()) == {(B, C)}
    assert {node.views.epoch.leader for node in wires.nodes.values()} == {B}


def test_a_leader_that_was_started_again_does_not_leave_the_others_without_one() -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    wires.kill(A)
    wires.start(A)
    wires.connect(A, B, C)
    wires.wait(3.0)
    assert set(wires.views().values()) == {(A, B, C)}
    assert len(wires.epochs()) == 1


def test_a_node_that_was_silent_is_heard_again_on_the_same_connection() -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    wires.held.add(C)
    stopped = wires.nodes.pop(C)
    wires.wait(3.0)
    assert set(wires.views().values()) == {(A, B)}
    wires.nodes[C] = stopped
    wires.held.clear()
    wires.wait(3.0)
    assert set(wires.views().values()) == {(A, B, C)}


def test_an_obituary_counts_whether_it_comes_before_or_after_the_closed_connection() -> None:
    from elasticd.core.words.views import Obituary

    for early in (True, False):
        wires = Wires(A, B, C)
        wires.connect(A, B, C)
        if early:
            wires.post(A, e.Received(B, Obituary(C, "its ring broke too")))
            wires.post(B, e.Received(A, Obituary(C, "its ring broke too")))
        wires.kill(C)
        if not early:
            wires.post(A, e.Received(B, Obituary(C, "its ring broke too")))
            wires.post(B, e.Received(A, Obituary(C, "its ring broke too")))
        wires.settle()
        assert set(wires.views().values()) == {(A, B)}, "without waiting for any time-out"


def test_an_obituary_of_a_node_that_lives_kills_nobody() -> None:
    from elasticd.core.words.views import Obituary

    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    wires.post(A, e.Received(B, Obituary(C, "its ring broke too")))
    wires.wait(3.0)
    assert set(wires.views().values()) == {(A, B, C)}


def test_a_node_that_says_it_leaves_is_left_out_at_once() -> None:
    for leaver in (A, C):
        wires = Wires(A, B, C)
        wires.connect(A, B, C)
        wires.post(leaver, e.Leave("its daemon is being stopped"))
        wires.settle()
        rest = tuple(name for name in (A, B, C) if name != leaver)
        assert wires.views() == {leaver: (), **dict.fromkeys(rest, rest)}
        wires.wait(10.0)
        assert wires.views() == {leaver: (), **dict.fromkeys(rest, rest)}, "it is not let in again"


def test_who_left_is_not_waited_for_on_a_new_connection() -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    wires.post(C, e.Leave("drained"))
    wires.settle()
    wires.disconnect(C)
    wires.connect(A, C)
    wires.connect(B, C)
    wires.wait(3.0)
    assert wires.views() == {A: (A, B), B: (A, B), C: ()}


def test_who_left_may_take_it_back() -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    wires.post(C, e.Leave("drained"))
    wires.settle()
    wires.post(C, e.Stay())
    wires.wait(1.0)
    assert set(wires.views().values()) == {(A, B, C)}
    assert len(wires.epochs()) == 1


def test_the_reason_of_a_leave_is_in_the_event() -> None:
    wires = Wires(A, B)
    wires.connect(A, B)
    wires.post(A, e.Leave("its daemon is being stopped"))
    wires.settle()
    told = [emit.reason for emit in wires.emitted if emit.kind == "node_lost"]
    assert told == ["a left the view: its daemon is being stopped"]


def test_who_was_given_up_before_it_could_say_why_it_goes_is_heard_all_the_same() -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    stalled = wires.nodes.pop(A)
    wires.wait(10.0)
    assert wires.views() == {B: (B, C), C: (B, C)}
    wires.nodes[A] = stalled
    for _ in range(2):
        wires.post(A, e.Leave("its disk can't be written"))
        wires.settle()
    given_up, why = (emit.reason for emit in wires.emitted if emit.kind == "node_lost")
    assert "silent" in given_up
    assert why == "a, which had left the view, says why: its disk can't be written"


def test_who_was_given_up_says_why_it_goes_once_however_often_it_comes() -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    wires.kill(A)
    wires.wait(3.0)
    for _ in range(3):
        for name in (B, C):  # a third node carried it, as no link is there
            wires.post(name, e.Received(A, Leaving("its disk can't be written")))
        wires.settle()
    _, *why = (emit.reason for emit in wires.emitted if emit.kind == "node_lost")
    assert why == ["a, which had left the view, says why: its disk can't be written"]


def test_who_left_is_told_once_whatever_others_said_of_it() -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    wires.kill(A)
    for _ in range(2):
        for name in (B, C):
            wires.nodes[name].liveness.hearsay(A, "d does not hear it either")
            wires.post(name, e.Received(A, Leaving("drained")))
        wires.settle()
        wires.wait(1.0)
    told = [emit.reason for emit in wires.emitted if emit.kind == "node_lost"]
    assert told == ["a left the view: drained; d does not hear it either"]


def test_of_two_proposers_one_wins() -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    # Both sides of a link that is cut go on alone, each with a view above the last.
    wires.disconnect(C)
    wires.wait(2.1)
    assert wires.views() == {A: (A, B), B: (A, B), C: (C,)}
    wires.connect(A, C)
    wires.connect(B, C)
    wires.wait(2.0)
    assert set(wires.views().values()) == {(A, B, C)}
    assert len(wires.epochs()) == 1


def test_a_proposal_below_what_was_promised_is_refused() -> None:
    wires = Wires(A, B)
    wires.connect(A, B)
    node = wires.nodes[B]
    before = node.views.view
    assert before is not None
    old = ViewPropose(before)
    effects = node.step(wires.now, e.Received(A, old))
    answers = [f.message for f in effects if isinstance(f, e.Send) and f.to == A]
    assert [type(answer).__name__ for answer in answers if "View" in type(answer).__name__] == [
        "ViewNack"
    ]
    assert node.views.view is before


def test_a_view_that_nobody_promised_is_not_taken() -> None:
    from dataclasses import replace

    wires = Wires(A, B)
    wires.connect(A, B)
    node = wires.nodes[B]
    before = node.views.view
    assert before is not None
    strange = replace(before, epoch=replace(before.epoch, counter=99))
    node.step(wires.now, e.Received(A, ViewForm(strange)))
    assert node.views.view is before


def test_nothing_happens_in_a_quiet_cluster_but_heartbeats() -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    epochs, written = wires.epochs(), len(wires.journal)
    wires.wait(30.0)
    assert wires.epochs() == epochs
    assert len(wires.journal) == written


def test_a_node_that_comes_and_goes_is_let_in_more_and_more_slowly() -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    returns = []
    for _ in range(4):
        wires.disconnect(C)
        wires.wait(2.5)
        assert wires.views()[A] == (A, B)
        wires.connect(A, C)
        wires.connect(B, C)
        back = wires.now
        while wires.views()[A] != (A, B, C):
            wires.wait(0.1)
        returns.append(wires.now - back)
        assert len(wires.epochs()) == 1
    assert returns == [pytest.approx(wait, abs=0.8) for wait in (0.0, 0.5, 1.0, 2.0)]
    assert returns == sorted(returns)


def test_each_flap_costs_two_views_and_no_more() -> None:
    """One without the node and one with it."""
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    for _ in range(4):
        wires.journal.clear()
        before = wires.nodes[A].views.epoch.counter
        wires.disconnect(C)
        wires.wait(2.5)
        wires.connect(A, B, C)
        wires.wait(5.0)
        formed = [kind for who, kind in wires.journal if who == A].count("view_formed")
        assert wires.views()[A] == (A, B, C)
        assert formed <= 2 and wires.nodes[A].views.epoch.counter > before


def test_a_reconnection_changes_no_view() -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    epochs, written = wires.epochs(), len(wires.journal)
    for name in (A, B, C):
        wires.disconnect(name)
        wires.connect(A, B, C)
        wires.wait(3.0)
    assert wires.epochs() == epochs and len(wires.journal) == written


def test_a_node_that_stood_still_does_not_take_the_others_for_dead() -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    wires.wait(1.0)
    stopped = wires.nodes.pop(C)
    wires.wait(1.4)
    wires.nodes[C] = stopped
    wires.post(C, e.Tick())
    wires.wait(3.0)
    assert set(wires.views().values()) == {(A, B, C)}
    assert len(wires.epochs()) == 1


@pytest.mark.parametrize("who", [A, C])
def test_a_node_that_slept_follows_and_leads_nothing_until_it_has_heard_the_others(
    who: NodeId,
) -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    wires.wait(1.0)
    stopped = wires.nodes.pop(who)
    wires.wait(6.0)
    assert who not in wires.views()[B]
    wires.nodes[who] = stopped
    wires.post(who, e.Tick())
    assert stopped.views.view is None
    wires.wait(4.0)
    assert set(wires.views().values()) == {(A, B, C)}
    assert len(wires.epochs()) == 1


@pytest.mark.parametrize("who", [A, C])
def test_a_whole_cluster_that_slept_wakes_as_one(who: NodeId) -> None:
    wires = Wires(A, B, C)
    wires.connect(A, B, C)
    wires.wait(1.0)
    wires.now += 3600.0
    wires.post(who, e.Tick())
    wires.wait(5.0)
    assert set(wires.views().values()) == {(A, B, C)}
    assert len(wires.epochs()) == 1


# --- partition = "strict" -------------------------------------------------------------------------


def strict(*names: NodeId) -> Wires:
    wires = Wires(*names, strict=True)
    wires.connect(*names)
    return wires


def parked(wires: Wires) -> dict[NodeId, str]:
    return {name: node.views.parked for name, node in wires.nodes.items()}


def test_a_primary_view_is_attempted_and_formed_apart() -> None:
    wires = strict(A, B)
    assert parked(wires) == {A: "", B: ""}
    kinds = ["view_attempt", "primary_attempt", "primary_formed"]
    for name in (A, B):
        assert views_of(wires, name) == kinds


def test_the_smaller_side_parks_with_its_reason_and_returns_by_itself() -> None:
    wires = strict(A, B, C)
    wires.disconnect(C)
    wires.wait(2.1)
    assert wires.views() == {A: (A, B), B: (A, B), C: (C,)}
    assert parked(wires) == {
        A: "",
        B: "",
        C: 'partition = "strict": 1 of the last view\'s 3 members are here, 2 are needed',
    }
    wires.connect(A, C)
    wires.connect(B, C)
    wires.wait(2.0)
    assert parked(wires) == {A: "", B: "", C: ""}
    assert set(wires.views().values()) == {(A, B, C)}


def test_of_two_nodes_the_first_goes_on_and_the_second_parks() -> None:
    for victim, left in ((A, B), (B, A)):
        wires = strict(A, B)
        wires.kill(victim)
        wires.wait(2.1)
        assert wires.views() == {left: (left,)}
        assert bool(parked(wires)[left]) == (left == B)


def test_a_cluster_may_shrink_one_by_one() -> None:
    wires = strict(A, B, C)
    for victim in (C, B):
        wires.kill(victim)
        wires.wait(2.1)
    assert wires.views() == {A: (A,)}
    assert parked(wires) == {A: ""}


def test_both_lost_at_once_parks_the_third() -> None:
    wires = strict(A, B, C)
    wires.kill(A)
    wires.kill(B)
    wires.wait(2.1)
    assert "2 are needed" in parked(wires)[C]


def test_a_view_without_its_majority_is_given_up_before_another_is_formed() -> None:
    wires = strict(A, B, C)
    effects: list[e.Effect] = []
    for name in (A, B):
        effects += wires.nodes[C].step(wires.now, e.PeerDown(name, f"{name}1", "closed"))
    assert wires.nodes[C].views.parked == "", "they may come back at once"
    wires.held.add(C)
    wires.now += 2.0
    effects = wires.nodes[C].step(wires.now, e.Tick())
    told = [effect.text for effect in effects if isinstance(effect, e.Log)]
    assert told[:3] == ["node is dead", "node is dead", "gives up its view"]
    assert wires.nodes[C].views.parked


def test_votes_survive_a_restart() -> None:
    wires = strict(A, B, C)
    wires.kill(A)
    wires.wait(2.1)
    assert wires.views() == {B: (B, C), C: (B, C)}
    for name in (B, C):
        wires.kill(name)
    wires.start(A)
    wires.start(C)
    wires.connect(A, C)
    wires.wait(3.5)
    assert wires.views() == {A: (A, C), C: (A, C)}
    # Of b and c, the last view's members, only c is here, and b breaks the tie.
    assert all("without b" in reason for reason in parked(wires).values())
    wires.start(B)
    wires.connect(A, B)
    wires.connect(B, C)
    wires.wait(1.0)
    assert parked(wires) == {A: "", B: "", C: ""}


def test_an_answer_to_another_step_of_a_ballot_does_not_count() -> None:
    from elasticd.core.words.views import ViewAck
    from elasticd.recovery.quorum import History

    wires = Wires(A, B, strict=True)
    wires.held.add(B)
    wires.connect(A, B)
    wires.held.clear()
    wires.wait(0.01)
    node = wires.nodes[A]
    ballot = node.views.ballot
    assert ballot is not None and not ballot.view.primary
    node.step(wires.now, e.Received(B, ViewAck(ballot.view.epoch, True, History(), ())))
    assert node.views.ballot is ballot and ballot.waiting == {B}
    node.step(wires.now, e.Received(B, ViewAck(ballot.view.epoch, False, History(), ())))
    second = node.views.ballot
    assert second is not None and second.view.primary and second.waiting == {B}
    node.step(wires.now, e.Received(B, ViewAck(ballot.view.epoch, False, History(), ())))
    assert second.waiting == {B}
