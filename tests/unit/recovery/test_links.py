"""Rings past dead links."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.recovery.links import ANY_HOST, Way, choose
from elasticd.types import NodeId

A, B, C, D = (NodeId(name) for name in "abcd")
HOSTS = {n: (f"10.0.0.{n}", f"10.1.0.{n}") for n in (A, B, C, D)}
FIRST = {n: hosts[:1] for n, hosts in HOSTS.items()}


def dead(source: NodeId, target: NodeId, *hosts: str) -> list[Way]:
    return [Way(source, target, host, False) for host in hosts or FIRST[target]]


def test_nothing_is_moved_where_nothing_is_wrong() -> None:
    route = choose((A, B, C), HOSTS, [])
    assert route.order == (A, B, C) and route.reason == "" and route.without == ()
    assert route.hosts == ("10.0.0.a", "10.0.0.b", "10.0.0.c")


def test_a_dead_address_costs_an_address_and_no_more() -> None:
    route = choose((A, B, C), HOSTS, dead(A, B, "10.0.0.b"))
    assert route.order == (A, B, C)
    assert route.hosts == ("10.0.0.a", "10.1.0.b", "10.0.0.c")
    assert route.reason == "a reaches b at 10.1.0.b instead of 10.0.0.b"


def test_a_dead_link_costs_the_order_and_no_member() -> None:
    route = choose((A, B, C, D), FIRST, dead(A, B))
    assert set(route.order) == {A, B, C, D} and route.without == ()
    for left, right in zip(route.order, route.order[1:] + route.order[:1], strict=True):
        assert (left, right) != (A, B)
    assert "past links that are dead" in route.reason


@pytest.mark.parametrize("direction", [(A, B), (B, A)])
def test_a_link_that_is_dead_in_one_direction_is_dead(direction: tuple[NodeId, NodeId]) -> None:
    route = choose((A, B, C, D), FIRST, dead(*direction))
    around = zip(route.order, route.order[1:] + route.order[:1], strict=True)
    assert {A, B} not in [{left, right} for left, right in around]


@pytest.mark.parametrize("measured", [(A, B), (B, A)])
def test_an_address_that_one_side_has_not_tried_yet_is_taken_for_good(
    measured: tuple[NodeId, NodeId],
) -> None:
    source, target = measured
    good = Way(source, target, HOSTS[target][1], True)
    route = choose((A, B, C), HOSTS, [*dead(A, B), *dead(B, A), good])
    assert route.order == (A, B, C)
    assert route.hosts == ("10.0.0.a", "10.1.0.b", "10.0.0.c")


def test_who_names_no_address_is_where_others_found_it() -> None:
    unnamed = {n: ("",) for n in (A, B, C)}
    route = choose((A, B, C), unnamed, [*dead(A, B), *dead(B, A)])
    assert route.without == (B,) and route.order == (A, C)


def test_a_member_is_given_up_when_no_ring_holds_it() -> None:
    """Three nodes are each other's neighbours in every order."""
    route = choose((A, B, C), FIRST, dead(A, B))
    assert route.without == (B,) and route.order == (A, C)
    assert "b can't be reached" in route.reason


def test_the_member_with_the_most_dead_links_goes() -> None:
    route = choose((A, B, C, D), FIRST, dead(A, B) + dead(A, C) + dead(D, A))
    assert route.without == (A,) and route.order == (B, C, D)


def test_the_faster_address_is_taken() -> None:
    ways = [
        Way(A, B, "10.0.0.b", True, 0.002, 1e8),
        Way(A, B, "10.1.0.b", True, 0.002, 4e9),
    ]
    assert choose((A, B), HOSTS, ways).hosts[1] == "10.1.0.b"
    close = [
        Way(A, B, "10.0.0.b", True, 0.004, 1e8),
        Way(A, B, "10.1.0.b", True, 0.002, 3e8),
    ]
    assert choose((A, B), HOSTS, close).hosts[1] == "10.0.0.b", "the user's wish counts more"


@pytest.mark.parametrize("healthy", [True, False])
def test_an_address_that_is_known_to_work_comes_before_one_that_nobody_has_tried(
    healthy: bool,
) -> None:
    second = Way(A, B, "10.1.0.b", healthy)
    expected = "10.1.0.b" if healthy else "10.0.0.b"
    assert choose((A, B), HOSTS, [second]).hosts[1] == expected


def test_where_nothing_is_heard_another_address_is_tried() -> None:
    deaf = Way(A, B, ANY_HOST, False)
    route = choose((A, B, C), HOSTS, [deaf])
    assert route.order == (A, B, C)
    assert route.hosts == ("10.0.0.a", "10.1.0.b", "10.0.0.c")
    route = choose((A, B, C, D), FIRST, [deaf])
    around = zip(route.order, route.order[1:] + route.order[:1], strict=True)
    assert (A, B) not in around, "there is no other"
    known = Way(A, B, "10.0.0.b", True)
    assert choose((A, B), HOSTS, [deaf, known]).hosts[1] == "10.0.0.b", "it has answered since"


def test_a_host_without_a_name_is_one() -> None:
    """Nodes that say nothing of their addresses."""
    route = choose((A, B, C), {n: ("",) for n in (A, B, C)}, [])
    assert route.order == (A, B, C) and route.without == () and route.reason == ""


def test_a_world_of_one_needs_no_way() -> None:
    assert choose((A,), HOSTS, []).hosts == ("10.0.0.a",)


pairs = st.sampled_from(list(permutations((A, B, C, D), 2)))


@given(st.sets(pairs, max_size=6))
def test_no_ring_ever_uses_a_dead_link(cut: set[tuple[NodeId, NodeId]]) -> None:
    ways = [way for source, target in sorted(cut) for way in dead(source, target)]
    route = choose((A, B, C, D), FIRST, ways)
    assert sorted((*route.order, *route.without)) == [A, B, C, D]
    if len(route.order) > 1:
        for left, right in zip(route.order, route.order[1:] + route.order[:1], strict=True):
            assert (left, right) not in cut and (right, left) not in cut
    else:
        assert all((x, y) in cut or (y, x) in cut for x, y in permutations((A, B, C, D), 2))
