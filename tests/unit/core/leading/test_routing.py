"""The order and the addresses of a ring, by what its members say of their links."""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.leading import routing
from elasticd.core.leading.roster import Roster
from elasticd.core.words.records import Path
from elasticd.recovery.restore import Resume
from elasticd.types import NodeId
from tests.unit.core.leading.bench import A, B, C, holds, point_of, world_of
from tests.unit.core.leading.councils import roster_of

D = NodeId("d")
PORT = "10.9.9.9:4711"


def without_link(roster: Roster, one: NodeId, other: NodeId) -> Roster:
    """Neither reaches the other at any address."""
    for me, peer in ((one, other), (other, one)):
        status = roster.statuses[me]
        paths = (*status.paths, Path(peer, "*", False))
        roster.statuses[me] = replace(status, paths=paths)
    return roster


def with_hosts(roster: Roster, node: NodeId, *hosts: str) -> Roster:
    roster.statuses[node] = replace(roster.statuses[node], hosts=hosts)
    return roster


def test_links_that_nobody_complains_of_are_good() -> None:
    assert routing.beyond_reach(roster_of(), (A, B), (C,)) == ((), "")
    assert routing.most_in_a_ring(roster_of(), (A, B, C)) == 3


def test_of_three_two_that_do_not_reach_each_other_are_in_no_ring() -> None:
    roster = without_link(roster_of(), A, C)
    found, why = routing.beyond_reach(roster, (A, B), (C,))
    assert found == (C,), "a newcomer is given up before a member"
    assert why
    assert routing.most_in_a_ring(roster, (A, B, C)) == 2


def test_one_alone_needs_no_link() -> None:
    assert routing.beyond_reach(without_link(roster_of(), A, B), (A,), ()) == ((), "")


def test_four_go_round_a_link_that_is_dead() -> None:
    roster = without_link(roster_of(None, A, B, C, D), A, B)
    assert routing.beyond_reach(roster, (A, B, C, D), ()) == ((), "")
    resume = Resume(point_of(3), (A, B, C, D), ("keep", "peer:a", "keep", "keep"), "as planned")
    laid, _ = routing.laid(roster, resume, dict.fromkeys(resume.members, holds(None)))
    order = laid.members
    neighbours = {frozenset((order[i - 1], order[i])) for i in range(4)}
    assert frozenset((A, B)) not in neighbours
    assert dict(zip(order, laid.sources, strict=True))[B] == "peer:a", "each keeps its own source"
    assert laid.reason.startswith("as planned; ")


def test_a_ring_without_trouble_stays_as_it_was_planned() -> None:
    resume = Resume(point_of(3), (C, A, B), ("keep",) * 3, "as planned")
    holdings = dict.fromkeys((A, B, C), holds(None, host=PORT))
    laid, hosts = routing.laid(roster_of(), resume, holdings)
    assert (laid, hosts) == (resume, (PORT,) * 3)


def test_a_reducer_is_found_at_the_address_that_works_and_at_its_own_port() -> None:
    roster = with_hosts(roster_of(None, A, B), B, "10.0.0.2", "192.168.0.2")
    bad = (Path(B, "10.0.0.2", False), Path(B, "192.168.0.2", True))
    roster.statuses[A] = replace(roster.statuses[A], paths=bad)
    resume = Resume(point_of(3), (A, B), ("keep",) * 2, "")
    _, hosts = routing.laid(roster, resume, {A: holds(None), B: holds(None, host="10.0.0.2:5005")})
    assert hosts[1] == "192.168.0.2:5005"


def test_who_can_not_be_reached_by_now_leaves_the_ring_as_it_was_planned() -> None:
    roster = without_link(roster_of(), A, C)
    resume = Resume(point_of(3), (A, B, C), ("keep",) * 3, "as planned")
    laid, hosts = routing.laid(roster, resume, dict.fromkeys(resume.members, holds(None, host="h")))
    assert (laid, hosts) == (resume, ("h", "h", "h"))


def test_a_ring_goes_round_nothing_once_its_first_choice_works_again() -> None:
    world = replace(world_of(A, B), hosts=("10.0.0.1:1", "192.168.0.2:1"))
    roster = with_hosts(roster_of(world, A, B), A, "10.0.0.1", "192.168.0.1")
    with_hosts(roster, B, "10.0.0.2", "192.168.0.2")
    well = (Path(B, "10.0.0.2", True), Path(B, "192.168.0.2", True))
    roster.statuses[A] = replace(roster.statuses[A], paths=well)
    assert routing.detours(roster, world)
    straight = replace(world, hosts=("10.0.0.1:1", "10.0.0.2:1"))
    assert not routing.detours(roster, straight), "it uses the best addresses"
    for dead in ("10.0.0.2", "192.168.0.2"):
        ill = tuple(Path(B, host, host != dead) for host in ("10.0.0.2", "192.168.0.2"))
        roster.statuses[A] = replace(roster.statuses[A], paths=ill)
        assert not routing.detours(roster, world), "the ring breaks by itself, or has to go round"


def test_what_is_dead_elsewhere_keeps_no_ring_from_its_first_choice() -> None:
    hosts = {n: (f"10.0.0.{n}", f"192.168.0.{n}") for n in (A, B, C)}
    world = replace(world_of(A, B, C), hosts=("10.0.0.a:1", "192.168.0.b:1", "10.0.0.c:1"))
    roster = roster_of(world, A, B, C)
    for node in (A, B, C):
        with_hosts(roster, node, *hosts[node])

    def tell(source: NodeId, *dead: str) -> None:
        others = (n for n in (A, B, C) if n != source)
        paths = tuple(Path(n, host, host not in dead) for n in others for host in hosts[n])
        roster.statuses[source] = replace(roster.statuses[source], paths=paths)

    for source in (A, B, C):
        tell(source, "192.168.0.c")
    assert routing.detours(roster, world)
    tell(A, "10.0.0.b")
    assert not routing.detours(roster, world)
    tell(A, "192.168.0.b")
    assert not routing.detours(roster, world), "the ring breaks by itself"
    tell(A, "192.168.0.c")
    tell(B, "10.0.0.c")
    assert not routing.detours(roster, world), "another link of it does"


def test_a_ring_moves_to_no_address_that_nobody_has_tried() -> None:
    world = replace(world_of(A, B), hosts=("10.0.0.a:1", "192.168.0.b:1"))
    roster = with_hosts(roster_of(world, A, B), A, "10.0.0.a")
    with_hosts(roster, B, "10.0.0.b", "192.168.0.b")
    assert not routing.detours(roster, world)


def test_of_members_that_have_not_spoken_no_detour_is_known() -> None:
    world = world_of(A, B)
    roster = roster_of(world, A, B)
    del roster.statuses[B]
    assert not routing.detours(roster, world)
    assert not routing.detours(roster, world_of(A))
