"""Who listens to whom in a large view."""

from __future__ import annotations

from elasticd.core.overlay import MESH_NODES, QUORUM, RINGS, Alarms, place
from elasticd.types import NodeId

MANY = tuple(NodeId(f"n{number:04}") for number in range(300))
A, B, C, X = NodeId("a"), NodeId("b"), NodeId("c"), NodeId("x")


def test_small_views_need_none() -> None:
    assert place(MANY[0], MANY[:MESH_NODES]) is None
    assert place(MANY[0], MANY[: MESH_NODES + 1]) is not None


def test_observers_and_subjects_are_two_sides_of_one_thing() -> None:
    places = {node: place(node, MANY) for node in MANY}
    for node, own in places.items():
        assert own is not None and node not in own.subjects
        assert QUORUM <= len(own.observers) <= RINGS
        for subject in own.subjects:
            other = places[subject]
            assert other is not None and node in other.observers


def test_everybody_reaches_everybody_in_a_few_steps() -> None:
    """The graph holds together also when a tenth of it dies at once."""
    rest = set(MANY[::10]) ^ set(MANY)
    seen, edge = {MANY[1]}, {MANY[1]}
    for _ in range(6):
        found = {s for node in edge if (own := place(node, MANY)) for s in own.subjects}
        edge = (found & rest) - seen
        seen |= edge
    assert seen == rest


def test_one_observer_that_errs_convinces_nobody() -> None:
    alarms = Alarms()
    for _ in range(5):
        alarms.raise_(X, A, 10.0)
    assert alarms.dead(10.1, 300) == [] and alarms.pending(10.1)
    alarms.raise_(X, B, 10.2)
    alarms.raise_(X, C, 10.2)
    assert alarms.dead(10.3, 300) == [X] and not alarms.pending(10.3)
    alarms.clear(X)
    assert alarms.dead(10.3, 300) == []


def test_alarms_are_forgotten() -> None:
    alarms = Alarms()
    alarms.raise_(X, A, 10.0)
    assert alarms.deadline(10.0) == 10.5
    assert not alarms.pending(10.6)
    alarms.raise_(X, B, 11.9)
    alarms.raise_(X, C, 11.9)
    assert alarms.dead(11.95, 300) == [X]
    assert alarms.dead(12.1, 300) == [], "that of a is too old"
