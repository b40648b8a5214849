"""Which way round a ring goes, and over which address each neighbour is reached.

A rank connects to its right neighbour, so each link has one address: the right neighbour's, as the
left one can reach it. A dead link first costs the other address, then the order, and only then a
member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from elasticd.types import NodeId

ANY_HOST = "*"
"""Stands for whichever address a node is reached at."""
_MOST_STEPS = 20_000
"""Of the search for an order; a ring of more nodes than this can try has many good orders."""

_ALIKE = 8.0
"""Bandwidths that differ by less than this factor are alike: one was measured beside other work,
and the user's wish counts. Round trips don't count at all: they are those of the moment."""
_TRY_ALL = 2
"""Up to so many members that are given up together, every choice of them is tried."""


@dataclass(frozen=True, slots=True)
class Way:
    """How ``source`` last found ``target`` at one of its addresses (``host``, without a port).

    ``round_trip_seconds`` and ``bytes_per_second`` are 0 where nothing was measured.
    """

    source: NodeId
    target: NodeId
    host: str
    healthy: bool
    round_trip_seconds: float = 0.0
    bytes_per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class Route:
    """A decision: members in the order of the ring, and per member the host at which its left
    neighbour finds it. ``without``: who had to be given up. ``reason``: empty if nothing was moved.
    """

    order: tuple[NodeId, ...]
    hosts: tuple[str, ...]
    without: tuple[NodeId, ...] = ()
    reason: str = ""


def choose(
    members: Sequence[NodeId], hosts: Mapping[NodeId, Sequence[str]], ways: Sequence[Way]
) -> Route:
    """Route a ring over ``members``, which stay in their order wherever that is possible.

    ``hosts``: each member's addresses, the one that it prefers first. What was never measured is
    taken for good where no other address is known to work. A way at :data:`ANY_HOST` that is not
    healthy says that nothing is heard of the target, at whichever address. A world of one has no
    ring and keeps its first host.
    """
    known: dict[tuple[NodeId, NodeId], dict[str, Way]] = {}
    for way in ways:
        known.setdefault((way.source, way.target), {})[way.host] = way
    members = tuple(members)
    for count in range(len(members)):
        for without in _least_connected(members, known, count):
            rest = tuple(n for n in members if n not in without)
            order = _order(rest, hosts, known)
            if order is not None:
                lefts = order[-1:] + order[:-1]
                best = [_best(a, b, hosts, known) for a, b in zip(lefts, order, strict=True)]
                # Only a world of one, which has no ring, may find nothing.
                chosen = tuple(
                    hosts[n][0] if b is None else b for n, b in zip(order, best, strict=True)
                )
                reason = _reason(rest, order, chosen, hosts, without)
                return Route(order, chosen, without, reason)
    raise ValueError("a ring of nobody")


Known = Mapping[tuple[NodeId, NodeId], Mapping[str, Way]]


def _order(
    members: tuple[NodeId, ...], hosts: Mapping[NodeId, Sequence[str]], known: Known
) -> tuple[NodeId, ...] | None:
    """The first order, by the given one, in which all neighbours reach each other."""
    if len(members) == 1:
        return members
    steps = 0

    def reaches(left: NodeId, right: NodeId) -> bool:
        return _best(left, right, hosts, known) is not None

    def extend(path: tuple[NodeId, ...]) -> tuple[NodeId, ...] | None:
        nonlocal steps
        steps += 1
        if steps > _MOST_STEPS:
            return None
        if len(path) == len(members):
            return path if reaches(path[-1], path[0]) else None
        for node in members:
            if node not in path and reaches(path[-1], node):
                found = extend((*path, node))
                if found is not None:
                    return found
        return None

    return extend(members[:1])


def _best(
    left: NodeId, right: NodeId, hosts: Mapping[NodeId, Sequence[str]], known: Known
) -> str | None:
    """The right neighbour's host for this link; None if the link is dead, in either direction."""
    back = known.get((right, left), {})
    # Of several addresses one may not have been tried yet from that side.
    tried = len(hosts[left]) < 2 or all(host in back for host in hosts[left])
    if back and tried and not any(way.healthy for way in back.values()):
        return None
    ways = known.get((left, right), {})
    works = [ways[host] for host in hosts[right] if host in ways and ways[host].healthy]
    untried = [Way(left, right, host, True) for host in hosts[right] if host not in ways]
    well = works or untried
    if not works and ANY_HOST in ways and not ways[ANY_HOST].healthy:
        well = untried[1:]  # the first one is in use while nothing is heard
    if not well:
        return None
    slow = too_slow([(way.host, way.bytes_per_second) for way in well])
    return next(way.host for way in well if way.host not in slow)


def too_slow(speeds: Sequence[tuple[str, float]]) -> list[str]:
    """Which addresses carry so much less than the fastest one that a wish doesn't count.

    ``speeds``: address and bytes per second, 0 where nothing was measured.
    """
    fastest = max((speed for _, speed in speeds), default=0.0)
    return [address for address, speed in speeds if 0 < speed * _ALIKE < fastest]


def _least_connected(
    members: tuple[NodeId, ...], known: Known, count: int
) -> list[tuple[NodeId, ...]]:
    """Whom to try to do without, ``count`` of them; those with the most dead links first. Beyond a
    few only those: all combinations would be too many to try."""
    dead = {
        n: sum(
            1
            for (source, target), ways in known.items()
            if n in (source, target) and not any(way.healthy for way in ways.values())
        )
        for n in members
    }
    if count > _TRY_ALL:
        return [tuple(sorted(reversed(members), key=lambda n: -dead[n])[:count])]
    found = combinations(reversed(members), count)
    return sorted(found, key=lambda group: -sum(dead[n] for n in group))


def _reason(
    members: tuple[NodeId, ...],
    order: tuple[NodeId, ...],
    chosen: tuple[str, ...],
    hosts: Mapping[NodeId, Sequence[str]],
    without: tuple[NodeId, ...],
) -> str:
    said = []
    if without:
        who = " and ".join(without)
        said.append(f"{who} can't be reached by two neighbours over any address and is left out")
    if order != members:
        said.append(f"the ring goes {' → '.join(order)}, past links that are dead")
    for rank, (node, host) in enumerate(zip(order, chosen, strict=True)):
        if host != hosts[node][0] and len(order) > 1:
            said.append(f"{order[rank - 1]} reaches {node} at {host} instead of {hosts[node][0]}")
    return "; ".join(said)
