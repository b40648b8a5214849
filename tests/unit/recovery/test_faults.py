"""Evidence as it comes in, and the one fault behind it."""

from __future__ import annotations

from typing import cast, get_args

import pytest

from elasticd.recovery.faults import NEAREST, Evidence, classify, from_outside, of_reducer
from elasticd.types import Confidence, NodeId, Sign

A, B, C = (NodeId(name) for name in "abc")
TRAINER = "trainer ended with signal 9 while active"
REDUCER = "reducer ended with signal 9"
LOST = "connection to a peer was lost"


def pieces(*rows: tuple[NodeId, str, str]) -> list[Evidence]:
    """Evidence a millisecond apart, in the order in which the leader heard it."""
    return [
        Evidence(node, cast(Sign, sign), text, seen_seconds=10.0 + n / 1000)
        for n, (node, sign, text) in enumerate(rows)
    ]


def verdicts(*rows: tuple[NodeId, str, str]) -> list[tuple[str, NodeId]]:
    return [(found.fault, found.culprit) for found in classify(pieces(*rows))]


def test_a_killed_trainer_breaks_the_rings_of_its_neighbours() -> None:
    rows = [
        (A, "ring_broken", LOST),
        (B, "worker_exit", TRAINER),
        (C, "ring_broken", LOST),
        (C, "ring_broken", "reducer ended with exit status 1"),
    ]
    assert verdicts(*rows) == [("worker_exit", B)]
    (found,) = classify(pieces(*rows))
    assert found.evidence[0] == TRAINER
    assert f"a: {LOST}" in found.evidence and f"c: {LOST}" in found.evidence


def test_a_killed_reducer_is_told_from_those_that_it_takes_along() -> None:
    rows = [(C, "ring_broken", LOST), (A, "reducer_lost", REDUCER), (B, "ring_broken", LOST)]
    assert verdicts(*rows) == [("reducer_lost", A)]


def test_a_killed_node_is_one_fault() -> None:
    rows = [(A, "ring_broken", LOST), (B, "ring_broken", LOST), (C, "peer_lost", "c left the view")]
    assert verdicts(*rows) == [("peer_lost", C)]


def test_a_node_that_left_after_its_trainer_had_ended_is_told_once() -> None:
    rows = [(B, "worker_exit", TRAINER), (B, "peer_lost", "b left the view")]
    assert verdicts(*rows) == [("peer_lost", B)]
    assert classify(pieces(*rows))[0].evidence == ("b left the view", TRAINER)


def test_two_faults_at_once_are_two() -> None:
    rows = [
        (A, "worker_exit", TRAINER),
        (C, "ring_broken", LOST),
        (B, "peer_lost", "b left the view"),
    ]
    assert sorted(verdicts(*rows)) == [("peer_lost", B), ("worker_exit", A)]


def test_a_reducer_that_crashes_as_its_ring_breaks_is_no_second_fault() -> None:
    crashed = (B, "reducer_crashed", "reducer ended with signal 11")
    assert verdicts(crashed, (A, "reducer_lost", REDUCER)) == [("reducer_lost", A)]
    assert verdicts(crashed, (A, "worker_exit", TRAINER)) == [("worker_exit", A)]
    assert verdicts((A, "ring_broken", LOST), crashed) == [("reducer_lost", B)]


def test_what_a_trainer_says_of_its_reducer_counts_less_than_how_that_ended() -> None:
    gone = "the data socket closed"
    rows = [(B, "reducer_gone", gone), (A, "reducer_lost", REDUCER), (B, "ring_broken", LOST)]
    assert verdicts(*rows) == [("reducer_lost", A)]
    assert verdicts(*rows[::2], (A, "ring_broken", LOST)) == [("link_lost", B)]
    assert verdicts((A, "ring_broken", LOST), rows[0]) == [("reducer_lost", B)], "the only sign"


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (1, "ring_broken"),
        (0, "ring_broken"),
        (-9, "reducer_lost"),
        (-11, "reducer_crashed"),
        (-5, "reducer_crashed"),
    ],
)
def test_the_end_of_a_reducer(status: int, fault: str) -> None:
    assert of_reducer(status) == fault


def test_how_sure_it_is() -> None:
    def sure(sign: Sign, confidence: Confidence = "") -> str:
        (found,) = classify([Evidence(A, sign, "?", 1.0, confidence)])
        return found.confidence

    assert sure("worker_exit") == sure("reducer_lost") == "certain"
    assert sure("ring_broken") == "possible", "of a link, where only two ends are seen"
    assert sure("oom", "likely") == "likely"


def test_broken_rings_between_living_reducers_are_a_lost_link() -> None:
    assert verdicts((B, "ring_broken", LOST), (A, "ring_broken", LOST)) == [("link_lost", B)]


def test_a_state_that_does_not_come_is_a_lost_link() -> None:
    assert verdicts((C, "state_unavailable", "a is not connected")) == [("link_lost", C)]


def test_a_hang_that_is_ended_by_a_kill_stays_a_hang() -> None:
    rows = [(B, "worker_exit", TRAINER), (B, "hang", "it did not say what it holds")]
    assert verdicts(*rows) == [("hang", B)]


def test_the_same_words_are_told_once() -> None:
    (found,) = classify(pieces((A, "ring_broken", LOST), (A, "ring_broken", LOST)))
    assert found.evidence == (LOST,)


def test_a_word_that_nobody_knows_accuses_only_if_nothing_else_does() -> None:
    assert verdicts((A, "gremlins", "?"), (B, "worker_exit", TRAINER)) == [("worker_exit", B)]
    assert verdicts((A, "gremlins", "?")) == [("gremlins", A)]


def test_without_evidence_there_is_no_verdict() -> None:
    with pytest.raises(ValueError, match="no evidence"):
        classify([])


def test_lost_nodes_and_links_say_nothing_against_the_job() -> None:
    link, node = (A, "link_lost", "b is not heard"), (B, "peer_lost", "b left the view")
    ring, taken = (C, "ring_broken", LOST), (C, "state_unavailable", "b is gone")
    for rows in ([link], [node, ring], [link, ring, taken]):
        assert from_outside(pieces(*rows))
    for rows in ([], [ring], [taken], [link, (B, "worker_exit", TRAINER)], [node, (C, "oom", "")]):
        assert not from_outside(pieces(*rows))


def test_every_sign_has_its_place_between_cause_and_consequence() -> None:
    """One that had none would never be the cause of anything."""
    assert sorted(NEAREST) == sorted(get_args(Sign))
