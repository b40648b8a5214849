"""One address of a peer, judged by its answers."""

from __future__ import annotations

from typing import Any, cast

from elasticd.shell.network.wires import (
    LONGEST_PROOF_SECONDS,
    SETTLE_SECONDS,
    SICK_SECONDS,
    PeerRun,
    Wire,
)
from elasticd.types import NodeId


def wire(address: str = "10.0.0.2:7070") -> Wire:
    return Wire(address, cast(Any, None))


def answered(one: Wire, since: float, until: float) -> None:
    now = since
    while now < until:
        one.pong(now + 0.002, one.ping(now))
        one.judge(now + 0.002, [one])
        now += 0.15


def judge(one: Wire, now: float) -> None:
    """While another address of the peer answers all the time."""
    other = wire("10.0.1.2:7070")
    other.pong(now, other.ping(now))
    one.judge(now - 0.1, [one, other])
    one.judge(now, [one, other])


def test_an_address_that_leaves_pings_open_is_sick() -> None:
    one = wire()
    answered(one, 0.0, 3.0)
    assert not one.sick and 0.001 < one.round_trip_seconds < 0.003
    one.ping(3.0)
    judge(one, 3.0 + SICK_SECONDS - 0.01)
    assert not one.sick
    judge(one, 3.0 + SICK_SECONDS)
    assert one.sick


def test_it_is_well_again_after_a_proof_that_doubles() -> None:
    one = wire()
    now, proofs = 0.0, list[float]()
    for _ in range(7):
        one.ping(now)
        judge(one, now + 1.0)
        assert one.sick
        back = now = now + 1.0
        while one.sick:
            answered(one, now, now + 0.1)
            now += 0.1
        proofs.append(now - back)
    assert [round(proof) for proof in proofs] == [1, 2, 4, 8, 16, 30, 30]
    assert proofs[-1] < LONGEST_PROOF_SECONDS + 0.5


def test_a_late_answer_ends_every_question_before_it() -> None:
    one = wire()
    numbers = [one.ping(0.1 * n) for n in range(3)]
    one.pong(0.3, numbers[2])
    judge(one, 10.0)
    assert not one.sick
    one.pong(0.4, 999)


def test_what_we_did_not_read_says_nothing() -> None:
    one = wire()
    one.ping(0.0)
    one.forgive()
    judge(one, 10.0)
    assert not one.sick


def test_where_no_address_answers_it_is_the_peer_that_is_busy() -> None:
    both = [wire("10.0.0.2:7070"), wire("10.0.1.2:7070")]
    for one in both:
        answered(one, 0.0, 3.0)
    pings = [[one.ping(3.0 + 0.15 * n) for n in range(8)] for one in both]
    for n in range(1, 8):
        for one in both:
            one.judge(3.0 + 0.15 * n, both)
    assert not any(one.sick for one in both)
    # It answers again, on one of them a moment before it does on the other.
    both[0].pong(4.05, pings[0][-1])
    for one in both:
        one.judge(4.06, both)
    both[1].pong(4.07, pings[1][-1])
    for one in both:
        one.judge(4.21, both)
    assert not any(one.sick for one in both)


def test_the_one_that_still_does_not_answer_is_sick() -> None:
    both = [wire("10.0.0.2:7070"), wire("10.0.1.2:7070")]
    pings = [[one.ping(0.15 * n) for n in range(8)] for one in both]
    for one in both:
        one.judge(1.05, both)
    both[0].pong(1.06, pings[0][-1])
    for now in (1.2, 1.35):
        for one in both:
            one.judge(now, both)
    assert [one.sick for one in both] == [False, True]


def test_the_first_address_that_is_well_is_taken() -> None:
    peer = PeerRun(NodeId("b"), "b1", "x:1", ("x:1", "y:1"))
    y = peer.wires["y:1"] = wire("y:1")
    assert peer.choose() and peer.address == "y:1"
    x = peer.wires["x:1"] = wire("x:1")
    assert peer.choose() and peer.active is x
    x.sick = True
    assert peer.choose() and peer.active is y
    y.sick = True
    assert not peer.choose() and peer.active is y, "nothing is better than it"
    assert [(p.host, p.healthy) for p in peer.paths()] == [("x", False), ("y", False)]
    assert peer.news() and not peer.news()
    peer.announce(0.0)
    del peer.wires["y:1"]
    peer.settle(SETTLE_SECONDS / 2)
    assert [p.host for p in peer.paths()] == ["x"], "it may just not have answered yet"
    peer.settle(SETTLE_SECONDS)
    assert [(p.host, p.healthy) for p in peer.paths()] == [("x", False), ("y", False)]
    assert peer.choose() and peer.active is x


def test_an_address_that_is_told_of_may_not_have_answered_yet() -> None:
    peer = PeerRun(NodeId("b"), "b1", "x:1", ("x:1", "z:1"))
    peer.announce(0.0)
    peer.wires["x:1"] = wire("x:1")
    peer.speeds = {"x:1": 1.0, "z:1": 2.0}
    peer.settle(10.0)
    peer.moved(("y:1", "x:1"), 10.0)
    assert peer.speeds == {"x:1": 1.0}, "what has gone is measured again when it is back"
    for now, known in ((11.0, ["x"]), (12.0, ["y", "x"])):
        peer.settle(now)
        assert [path.host for path in peer.paths()] == known
