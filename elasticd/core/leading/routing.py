"""The ring of a world, by what its members say of the links between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from elasticd.core.leading.roster import Roster
from elasticd.core.words.records import World
from elasticd.core.words.worlds import Holding
from elasticd.recovery import links
from elasticd.recovery.restore import Resume
from elasticd.types import NodeId

_ANY_HOST = ("",)


def route(roster: Roster, members: Sequence[NodeId]) -> links.Route:
    """Who can be in one ring with whom, and how."""
    statuses = {n: roster.statuses.get(n) for n in members}
    hosts = {n: (s.hosts if s is not None else ()) or _ANY_HOST for n, s in statuses.items()}
    ways = [
        links.Way(n, p.peer, p.host, p.healthy, p.round_trip_seconds, p.bytes_per_second)
        for n, status in statuses.items()
        if status is not None
        for p in status.paths
        if p.peer in statuses
    ]
    return links.choose(members, hosts, ways)


def beyond_reach(
    roster: Roster, inside: Sequence[NodeId], others: Sequence[NodeId]
) -> tuple[tuple[NodeId, ...], str]:
    """Who of both can't be in one ring with the rest, and why; of ``others`` first."""
    members = (*inside, *(n for n in others if n not in inside))
    if len(members) < 2:
        return (), ""
    found = route(roster, members)
    return found.without, found.reason if found.without else ""


def most_in_a_ring(roster: Roster, nodes: Sequence[NodeId]) -> int:
    """How many of ``nodes`` one ring can hold."""
    without, _ = beyond_reach(roster, nodes, ())
    return len(nodes) - len(without)


def detours(roster: Roster, world: World) -> bool:
    """Whether a link of ``world`` is to move to a better address, which is known to work. One whose
    own address is dead breaks by itself; other dead links have no part in it."""
    members = world.members
    if len(members) < 2 or not set(members) <= roster.statuses.keys():
        return False
    best = route(roster, members)
    if best.without or best.order != members:
        return False
    moves = False
    for rank, (node, host) in enumerate(zip(members, best.hosts, strict=True)):
        now = world.hosts[rank].rpartition(":")[0]
        paths = roster.statuses[members[rank - 1]].paths
        well = {path.host: path.healthy for path in paths if path.peer == node}
        if host and not well.get(now, True):
            return False
        moves = moves or (host != now and well.get(host, False))
    return moves


def laid(
    roster: Roster, resume: Resume, holdings: Mapping[NodeId, Holding]
) -> tuple[Resume, tuple[str, ...]]:
    """The members in the order of their ring, and per member the address at which its left
    neighbour finds its reducer."""
    found = route(roster, resume.members)
    if found.without:
        # Whoever can't be reached was left out before; then the rest is as good as it gets.
        return resume, tuple(holdings[n].host for n in resume.members)
    sources = dict(zip(resume.members, resume.sources, strict=True))
    reason = "; ".join(filter(None, (resume.reason, found.reason)))
    ordered = replace(
        resume,
        members=found.order,
        sources=tuple(sources[n] for n in found.order),
        reason=reason,
    )
    hosts = zip(found.order, found.hosts, strict=True)
    return ordered, tuple(_at(holdings[n].host, host) for n, host in hosts)


def _at(own: str, host: str) -> str:
    """The address of a reducer (``ip:port``) at another of its node's hosts."""
    if not host or not own:
        return own
    return f"{host}:{own.rpartition(':')[2]}"
