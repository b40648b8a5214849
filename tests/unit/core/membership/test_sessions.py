"""One session's rules, and the frames that carry it."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from elasticd.core.endpoint import Endpoint
from elasticd.core.membership import sessions as module
from elasticd.core.membership.sessions import Session
from elasticd.core.node import Node, Who
from elasticd.core.words import effects as e
from elasticd.core.words.frames import Frame, decode_frame, encode_frame
from elasticd.core.words.messages import Message
from elasticd.core.words.tables import JobsKept
from elasticd.core.words.views import Heartbeat
from elasticd.errors import ProtocolError
from elasticd.types import NO_TAG, JobId, NodeId

BEAT = Heartbeat(NO_TAG, 0)


def note(number: int) -> JobsKept:
    return JobsKept((JobId(str(number)),))


def pair() -> tuple[Session, Session]:
    a, b = Session("a1", "b1"), Session("b1", "a1")
    assert a.up(0.0) == b.up(0.0) == []
    return a, b


def test_what_arrives_is_acknowledged_alone_after_a_moment() -> None:
    a, b = pair()
    (frame,) = a.send(1.0, note(1))
    assert b.receive(1.01, frame) == [note(1)]
    assert b.overdue(1.02) == []
    assert b.deadline() == 1.01 + module.ACK_SECONDS
    (bare,) = b.overdue(b.deadline())
    assert bare.message is None and bare.ack == 1
    assert a.receive(1.1, bare) == []
    assert a.deadline() == b.deadline() == float("inf")


def test_an_acknowledgement_travels_on_what_goes_the_other_way() -> None:
    a, b = pair()
    b.receive(1.0, a.send(1.0, note(1))[0])
    (frame,) = b.send(1.01, BEAT)
    assert frame.number == 0 and frame.ack == 1
    assert b.deadline() == float("inf")
    assert a.receive(1.02, frame) == [BEAT]
    assert a.deadline() == float("inf")


def test_what_is_lost_is_sent_again_more_and_more_seldom() -> None:
    a, b = pair()
    a.send(1.0, note(1))
    times = []
    for _ in range(6):
        times.append(a.deadline())
        (again,) = a.overdue(times[-1])
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert gaps == [pytest.approx(wait) for wait in (0.4, 0.8, 1.6, 2.0, 2.0)]
    assert b.receive(9.0, again) == [note(1)]
    assert b.receive(9.0, again) == []
    assert b.counters.duplicates == 1 and a.counters.resent == 6


@pytest.mark.parametrize("seed", range(5))
def test_many_messages_over_a_network_that_loses_some_do_not_make_it_ever_slower(seed: int) -> None:
    """What waits behind a gap says nothing of how long an answer takes."""
    dice, ways = random.Random(seed), {}
    a, b = pair()
    ways["to b"], ways["to a"] = list[tuple[float, Frame]](), list[tuple[float, Frame]]()

    def carry(now: float, way: str, frames: list[Frame]) -> None:
        ways[way] += [(now + dice.uniform(0.001, 0.003), f) for f in frames if dice.random() > 0.05]

    heard: list[Message] = []
    now = 1.0
    for number in range(400):
        carry(now + number / 1000, "to b", a.send(now + number / 1000, note(number)))
    while len(heard) < 400:
        comes = min((at for way in ways.values() for at, _ in way), default=float("inf"))
        now = min(comes, a.deadline(), b.deadline())
        for way, to, back in (("to b", b, "to a"), ("to a", a, "to b")):
            due = sorted((each for each in ways[way] if each[0] <= now), key=lambda each: each[0])
            ways[way] = [each for each in ways[way] if each[0] > now]
            heard += [message for _, frame in due for message in to.receive(now, frame)]
            carry(now, back, to.overdue(now))
    assert heard == [note(number) for number in range(400)]
    assert now < 1.0 + 0.4 + 20.0 * module.SHORTEST_RESEND_SECONDS


def test_a_gap_is_waited_for() -> None:
    a, b = pair()
    frames = [a.send(1.0, note(number))[0] for number in range(4)]
    assert b.receive(1.0, frames[1]) == []
    assert b.receive(1.0, frames[3]) == []
    assert b.receive(1.0, frames[0]) == [note(0), note(1)]
    assert b.receive(1.0, frames[2]) == [note(2), note(3)]


def test_a_heartbeat_that_was_overtaken_is_old_news() -> None:
    a, b = pair()
    (old,) = a.send(1.0, BEAT)
    (message,) = a.send(1.0, note(1))
    (new,) = a.send(1.0, BEAT)
    assert b.receive(1.0, message) == [note(1)]
    assert b.receive(1.0, old) == []
    assert b.receive(1.0, new) == [BEAT]


def test_a_new_connection_brings_what_the_old_one_may_have_lost() -> None:
    a, b = pair()
    (first,) = a.send(1.0, note(1))
    b.receive(1.0, first)
    for each in (a, b):
        each.down()
    assert a.send(1.1, note(2)) == [] and a.send(1.1, BEAT) == []
    assert a.deadline() == float("inf")
    again = a.up(2.0)
    assert [frame.number for frame in again] == [1, 2]
    b.up(2.0)
    assert [m for frame in again for m in b.receive(2.0, frame)] == [note(2)]


def test_frames_of_another_run_are_dropped() -> None:
    a, b = pair()
    (frame,) = a.send(1.0, note(1))
    assert b.receive(1.0, replace(frame, boots=("a0", "b1"))) == []
    assert b.receive(1.0, replace(frame, boots=("a1", "b0"))) == []
    assert b.counters.stale == 2
    assert b.receive(1.0, frame) == [note(1)]


def test_messages_that_are_given_up_are_known_to_both_sides() -> None:
    a, b = pair()
    old = [a.send(1.0, note(number))[0] for number in range(3)]
    b.receive(1.0, old[0])
    a.give_up()
    (fresh,) = a.send(1.0, note(7))
    assert b.receive(1.0, fresh) == [note(7)]
    assert (a.restarts, b.restarts) == (1, 1)
    assert b.receive(1.0, old[1]) == [], "of a stream that has ended"
    (ack,) = b.overdue(b.deadline())
    a.receive(1.0, replace(ack, ack_stream=1, ack=3))
    assert a.deadline() < float("inf"), "an acknowledgement of the old stream counts for nothing"
    a.receive(1.0, ack)
    assert a.deadline() == float("inf")


def test_a_peer_that_takes_nothing_is_told_of_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNACKED", 3)
    node, peer = NodeId("a"), NodeId("b")
    endpoint = Endpoint(Node(Who(node, "a1", lambda: "00", 1)))
    endpoint.step(1.0, e.Tick())
    endpoint.step(1.0, e.PeerUp(peer, "b1", "b:1"))
    session = endpoint.sessions[peer]
    for number in range(3):
        session.send(1.0, note(number))
    first = endpoint.step(1.1, e.Arrived(peer, Frame(("b1", "a1"), 1, 0, 1, 1, 0, BEAT)))
    assert session.restarts == 1, "the view that is proposed now was one too many"
    sent = [f.frame for f in first if isinstance(f, e.Transmit)]
    assert {frame.stream for frame in sent} == {1, 2}
    assert endpoint.node.liveness.peers[peer].session == 1


def test_a_frame_of_an_unknown_peer_is_counted() -> None:
    endpoint = Endpoint(Node(Who(NodeId("a"), "a1", lambda: "00", 1)))
    assert (
        endpoint.step(1.0, e.Arrived(NodeId("b"), Frame(("b1", "a1"), 1, 0, 1, 1, 0, BEAT))) == []
    )
    assert endpoint.strays == 1


@pytest.mark.parametrize("message", [None, BEAT, note(3)])
def test_frames_survive_the_wire(message: Message | None) -> None:
    number = 5 if isinstance(message, JobsKept) else 0
    frame = Frame(("a1", "b1"), 1, number, 7, 2, 9, message)
    assert decode_frame(encode_frame(frame)) == frame


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"v": 2}, "a frame of version '2'"),
        ({"more": 1}, "with the fields"),
        ({"boots": ["a1"]}, "1 items|expected|fit"),
        ({"place": [1, 2, 3]}, "expected"),
        ({"place": [1, -2, 3, 4, 5]}, "a place that is none"),
        ({"place": [0, 2, 3, 4, 5]}, "a place that is none"),
        ({"place": [1, True, 3, 4, 5]}, "expected"),
        ({"message": 7}, "no map"),
        ({"message": None}, "a number and no message"),
        ({"message": {"t": "Nonsense"}}, "unknown message"),
    ],
)
def test_what_is_no_frame_is_refused(change: dict[str, Any], why: str) -> None:
    good = encode_frame(Frame(("a1", "b1"), 1, 5, 7, 2, 9, note(1)))
    with pytest.raises(ProtocolError, match=why):
        decode_frame({**good, **change})
