"""The overlay above a full mesh's reach: who watches whom, whatever is lost."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from elasticd.core.membership.circle import CHARGE_SECONDS, CONFIRM, WIDE_SECONDS, Circle
from elasticd.core.membership.overlay import FULL_MESH_NODES, RINGS, overlay
from elasticd.types import NodeId

SIZES = (65, 80, 200, 1000)


def names(size: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(f"node-{number:04}") for number in range(size))


def reached(members: frozenset[NodeId], edges: dict[NodeId, frozenset[NodeId]]) -> set[NodeId]:
    first = min(members)
    found, ahead = {first}, [first]
    while ahead:
        fresh = (edges[ahead.pop()] & members) - found
        found |= fresh
        ahead += fresh
    return found


@pytest.mark.parametrize("size", SIZES)
def test_who_watches_is_watched_by_a_few(size: int) -> None:
    members = names(size)
    found = {node: overlay(members).neighbours(node) for node in members}
    assert all(node in found[other] for node in members for other in found[node])
    assert max(map(len, found.values())) <= 2 * RINGS
    assert min(map(len, found.values())) >= RINGS


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(5))
def test_after_random_losses_the_living_are_connected(size: int, seed: int) -> None:
    """News that everyone passes on to its neighbours still reach everyone, and nearly all of the
    dead have watchers left; those of whom none is left get new ones as the others are buried."""
    members = names(size)
    dead = frozenset(random.Random(seed).sample(members, size // 4))
    living = frozenset(members) - dead
    edges = {node: overlay(members).neighbours(node) for node in members}
    assert reached(living, edges) == living
    assert all(edges[node] & living for node in dead)
    watched = sum(len(edges[node] & living) >= CONFIRM for node in dead)
    assert watched >= 0.95 * len(dead)


@pytest.mark.parametrize("seed", range(3))
def test_the_dead_are_all_found_ring_by_ring(seed: int) -> None:
    """However many die, burying whom the living watch brings the rest before their eyes."""
    members = names(200)
    living = frozenset(random.Random(seed).sample(members, 20))
    alive = members
    while len(alive) > len(living):
        seen = {n for node in living for n in overlay(alive).neighbours(node)} - living
        assert seen, "somebody dead is next to somebody alive on some ring"
        alive = tuple(node for node in alive if node not in seen)


@pytest.mark.process
def test_the_overlay_depends_on_names_only() -> None:
    script = (
        "from elasticd.core.membership.overlay import overlay\n"
        "members = tuple(f'node-{number}' for number in range(100))\n"
        "print([sorted(overlay(members).neighbours(node)) for node in members])\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(outputs) == 1


# --- who is dead ----------------------------------------------------------------------------------


def circle(size: int = 100) -> tuple[Circle, NodeId, list[NodeId]]:
    """The place of some node, another one, and those that watch that."""
    members = names(size)
    place = Circle(members[0])
    place.form(members)
    subject = members[size // 2]
    return place, subject, sorted(place.watchers(subject))


def test_a_small_view_has_no_overlay() -> None:
    place, _, _ = circle(FULL_MESH_NODES)
    assert place.near is None and not place.sparse
    assert circle(FULL_MESH_NODES + 1)[0].sparse


def test_one_deaf_watcher_kills_nobody_and_several_do() -> None:
    place, subject, watchers = circle()
    for number, watcher in enumerate(watchers[:CONFIRM], start=1):
        assert place.verdict(subject, 10.0) is None
        place.charge(subject, watcher, 10.0, 1.5 + number / 10)
    verdict = place.verdict(subject, 10.0)
    assert verdict is not None
    assert verdict[0] == f"silent for 1.8 s, say {', '.join(watchers[:CONFIRM])}"
    assert verdict[1] == pytest.approx(8.2)


def test_charges_of_different_times_do_not_add_up() -> None:
    place, subject, watchers = circle()
    for number, watcher in enumerate(watchers):
        now = 10.0 + number * CHARGE_SECONDS / (CONFIRM - 1)
        place.charge(subject, watcher, now, 1.5)
        assert place.verdict(subject, now) is None


def test_watchers_that_are_silent_themselves_are_not_waited_for() -> None:
    """On one side of a cut a node may have a single watcher left."""
    place, subject, watchers = circle()
    place.charge(subject, watchers[0], 10.0, 1.5)
    for watcher in watchers[1:]:
        for accuser in sorted(place.watchers(watcher))[:2]:
            place.charge(watcher, accuser, 10.0, 1.5)
    assert place.verdict(subject, 10.0) is not None


def test_who_loses_half_of_its_neighbours_at_once_is_cut_off() -> None:
    place, _, _ = circle()
    assert place.near is not None
    near = sorted(place.near)
    for node in near[: len(near) // 2 - 1]:
        place.charge(node, place.me, 10.0, 1.5)
    assert not place.cut(place.alive, 10.0)
    for node in near:
        place.charge(node, place.me, 10.0, 1.5)
    assert place.cut(place.alive, 10.0)


def test_heartbeats_go_to_those_that_asked_lately() -> None:
    place, subject, _ = circle()
    place.asked(subject, True, 10.0)
    assert list(place.listening(10.5)) == [subject]
    assert list(place.listening(11.5)) == []
    place.asked(subject, True, 12.0)
    place.asked(subject, False, 12.1)
    assert list(place.listening(12.2)) == []


def test_who_listened_to_everyone_in_vain_listens_to_a_few_again() -> None:
    place, _, _ = circle()
    place.widened_at = 10.0
    place.settle(place.alive, place.alive)
    assert place.near is None and place.sparse
    assert not place.narrow(10.0 + WIDE_SECONDS - 1)
    assert place.narrow(10.0 + WIDE_SECONDS)
    place.settle(place.alive, place.alive)
    assert place.near is not None
