"""Which nodes share a network. Who reaches another by a router alone has a slower link, or none."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from elasticd.types import NodeId


def network(told: str) -> str:
    """That of an address with the bits of its mask, as "10.0.0.5/24"; what is none is its own."""
    try:
        return str(ipaddress.ip_network(told, strict=False))
    except ValueError:
        return told


def islands(told: Mapping[NodeId, Sequence[str]]) -> list[list[NodeId]]:
    """Nodes that share a network, or share one each with a third: two that a ring of cables joins
    by way of others need none in common. The largest group first.

    ``told``: each node's addresses, as "10.0.0.5/24".
    """
    groups: list[tuple[set[str], list[NodeId]]] = []
    for node, addresses in told.items():
        networks, nodes = {network(each) for each in addresses}, [node]
        apart = []
        for group in groups:
            if group[0] & networks:
                networks, nodes = networks | group[0], group[1] + nodes
            else:
                apart.append(group)
        groups = [*apart, (networks, nodes)]
    return sorted((nodes for _, nodes in groups), key=lambda nodes: (-len(nodes), min(nodes)))


def behind_router(node: NodeId, address: str, networks: Sequence[str]) -> str:
    """What is wrong if who has ``networks`` is to reach ``node`` there; empty: nothing, or the
    address is a name."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if any(found in ipaddress.ip_network(each, strict=False) for each in networks):
        return ""
    return (
        f"{node} is reached at {address}, in no network of this node ({', '.join(networks)}). By a"
        " router the ring is slow, or isn't let through: give all nodes addresses of one network"
        " ('elasticctl preflight' says whose are elsewhere)"
    )
