"""In a large view several have to find a node silent before it is dead, and a cut is told apart."""

from __future__ import annotations

import pytest

from elasticd.core.membership.circle import (
    CHARGE_SECONDS,
    CONFIRM,
    LISTENER_SECONDS,
    REPEAT_SECONDS,
    STABLE_SECONDS,
    WIDE_SECONDS,
    Circle,
)
from elasticd.core.membership.overlay import FULL_MESH_NODES
from elasticd.types import NodeId

from .peers import CROWD, MANY, ME, START, A, B, C

OTHER = MANY[0]


@pytest.fixture
def circle() -> Circle:
    made = Circle(ME)
    made.form(CROWD.members)
    return made


def charge(circle: Circle, node: NodeId, by: int, now: float = START, silent: float = 2.0) -> None:
    """So many of its watchers charge a node."""
    for watcher in sorted(circle.watchers(node))[:by]:
        circle.charge(node, watcher, now, silent)


def test_in_a_small_view_everyone_is_listened_to() -> None:
    circle = Circle(ME)
    circle.form((A, B, C, ME))
    assert circle.near is None and not circle.sparse
    circle.form(CROWD.members[:FULL_MESH_NODES])
    assert circle.near is None
    circle.form(CROWD.members[: FULL_MESH_NODES + 1])
    assert circle.near is not None


def test_in_a_large_one_only_a_few_are(circle: Circle) -> None:
    assert circle.near is not None and circle.sparse
    assert circle.near == circle.watchers(ME) and 6 <= len(circle.near) <= 10


def test_those_that_are_dead_are_no_watchers(circle: Circle) -> None:
    gone = min(circle.watchers(OTHER) - {ME})
    circle.settle(CROWD.members, tuple(n for n in CROWD.members if n != gone))
    assert gone not in circle.watchers(OTHER)


# --- charges --------------------------------------------------------------------------------------


def test_one_watcher_kills_nobody(circle: Circle) -> None:
    charge(circle, OTHER, by=CONFIRM - 1)
    assert circle.verdict(OTHER, START) is None
    charge(circle, OTHER, by=CONFIRM)
    assert circle.verdict(OTHER, START) is not None


def test_the_verdict_names_who_charged_it_and_since_when_it_is_silent(circle: Circle) -> None:
    charge(circle, OTHER, by=CONFIRM, silent=2.0)
    first = sorted(circle.watchers(OTHER))[0]
    circle.charge(OTHER, first, START + 1.0, 3.5)
    verdict = circle.verdict(OTHER, START + 1.0)
    assert verdict is not None
    why, since = verdict
    assert why.startswith("silent for 3.5 s, say ") and first in why and since == START - 2.5


def test_a_charge_is_forgotten_after_a_while(circle: Circle) -> None:
    charge(circle, OTHER, by=CONFIRM)
    assert circle.verdict(OTHER, START + CHARGE_SECONDS - 0.1) is not None
    assert circle.verdict(OTHER, START + CHARGE_SECONDS) is None


def test_where_fewer_watchers_are_sound_fewer_are_enough(circle: Circle) -> None:
    watchers = sorted(circle.watchers(OTHER))
    for watcher in watchers[1:]:
        charge(circle, watcher, by=2)
    circle.charge(OTHER, watchers[0], START, 2.0)
    assert circle.verdict(OTHER, START) is not None, "the others are charged themselves"


def test_who_is_not_charged_is_not_dead_though_no_watcher_is_sound(circle: Circle) -> None:
    for watcher in circle.watchers(OTHER):
        charge(circle, watcher, by=2)
    assert circle.verdict(OTHER, START) is None


def test_we_charge_again_while_it_stays_silent_and_not_at_once(circle: Circle) -> None:
    circle.charge(OTHER, ME, START, 2.0)
    assert circle.again_at(OTHER) == START + REPEAT_SECONDS
    circle.charge(MANY[1], MANY[2], START, 2.0)
    assert circle.again_at(MANY[1]) < START, "that was somebody else"


def test_we_take_our_own_charge_back_when_we_hear_it_and_no_others(circle: Circle) -> None:
    near = min(circle.watchers(ME))
    others = sorted(circle.watchers(near) - {ME})[: CONFIRM - 1]
    for by in (*others, ME):
        circle.charge(near, by, START, 2.0)
    assert circle.verdict(near, START) is not None
    circle.acquit(near)
    assert circle.verdict(near, START) is None
    circle.charge(near, MANY[-1], START, 2.0)
    assert circle.verdict(near, START) is not None, "the others' stand"


def test_no_view_is_due_right_after_a_first_charge(circle: Circle) -> None:
    """Those that fail together go together."""
    assert not circle.undecided(START)
    charge(circle, OTHER, by=1)
    charge(circle, OTHER, by=2, now=START + 0.4)
    assert circle.undecided(START + STABLE_SECONDS - 0.1)
    assert not circle.undecided(START + STABLE_SECONDS), "later charges do not put it off"
    circle.drop(OTHER)
    assert not circle.undecided(START)


def test_a_new_charge_after_old_ones_counts_as_first(circle: Circle) -> None:
    charge(circle, OTHER, by=1)
    later = START + CHARGE_SECONDS
    charge(circle, OTHER, by=1, now=later)
    assert circle.undecided(later)


def test_another_view_forgets_all_charges(circle: Circle) -> None:
    charge(circle, OTHER, by=CONFIRM)
    circle.form(CROWD.members)
    assert circle.verdict(OTHER, START) is None


# --- cuts -----------------------------------------------------------------------------------------


def test_half_of_those_we_watch_silent_at_once_is_a_cut(circle: Circle) -> None:
    assert circle.near is not None
    near = sorted(circle.near)
    half = (len(near) + 1) // 2
    for node in near[: half - 1]:
        circle.charge(node, ME, START, 2.0)
    assert not circle.cut(CROWD.members, START)
    circle.charge(near[half - 1], ME, START, 2.0)
    assert circle.cut(CROWD.members, START)


def test_so_is_a_quarter_of_all(circle: Circle) -> None:
    assert circle.near is not None
    far = [node for node in MANY if node not in circle.near]
    quarter = len(CROWD.members) // 4
    for node in far[: quarter - 1]:
        circle.charge(node, far[-1], START, 2.0)
    assert not circle.cut(CROWD.members, START)
    circle.charge(far[quarter - 1], far[-1], START, 2.0)
    assert circle.cut(CROWD.members, START)


def test_who_was_buried_counts_too(circle: Circle) -> None:
    assert circle.near is not None
    far = [node for node in MANY if node not in circle.near]
    gone = set(far[: len(CROWD.members) // 4])
    circle.settle(CROWD.members, tuple(n for n in CROWD.members if n not in gone))
    assert circle.cut(CROWD.members, START)


def test_in_a_small_view_there_is_no_such_thing() -> None:
    circle = Circle(ME)
    circle.form((A, B, C, ME))
    for node in (A, B, C):
        circle.charge(node, ME, START, 2.0)
    assert not circle.cut((A, B, C, ME), START)


def test_after_a_cut_everyone_is_listened_to_for_a_while(circle: Circle) -> None:
    circle.widen(START)
    circle.settle(CROWD.members, CROWD.members)
    assert circle.near is None and circle.sparse and circle.wide
    assert not circle.narrow(START + WIDE_SECONDS - 0.1)
    assert circle.narrow(START + WIDE_SECONDS)
    assert not circle.wide and not circle.narrow(START + 2 * WIDE_SECONDS)


def test_a_new_view_ends_that(circle: Circle) -> None:
    circle.widen(START)
    circle.form(CROWD.members)
    assert circle.near is not None and not circle.wide


# --- who wants our heartbeats ---------------------------------------------------------------------


def test_who_asked_gets_heartbeats_until_it_says_otherwise_or_not_for_long(circle: Circle) -> None:
    for node in MANY[:3]:
        circle.asked(node, True, START)
    circle.asked(MANY[1], False, START + 0.5)
    circle.asked(MANY[2], True, START + 0.5)
    assert [*circle.listening(START + 0.5)] == [MANY[0], MANY[2]]
    assert [*circle.listening(START + LISTENER_SECONDS)] == [MANY[2]]


def test_in_a_small_view_nobody_has_to_ask() -> None:
    circle = Circle(ME)
    circle.form((A, B, C, ME))
    circle.asked(A, True, START)
    assert [*circle.listening(START)] == []
