"""The nodes whose copies of a job's files and checkpoints count."""

from __future__ import annotations

from collections.abc import Iterable

from elasticd.core.node import Node
from elasticd.types import NodeId


def members_of(node: Node) -> list[NodeId]:
    """Those of the view that ``node`` is in."""
    view = node.views.view
    return sorted(view.members) if view is not None else []


def lasting_of(node: Node) -> list[NodeId]:
    """The members that count: one that is drained may be switched off, a witness holds no files
    but those of a job that was submitted there."""
    standing = node.tables.nodes.standing()
    able = [each for each in members_of(node) if each not in standing.witnesses]
    return [each for each in able if each not in standing.leaving] or able


def runs_of(node: Node, nodes: Iterable[NodeId]) -> dict[NodeId, str]:
    """The run of the daemon of each, as another one may be on an empty disk; nothing is said of
    ``node`` itself, and of one that is away."""
    peers = node.liveness.peers
    return {each: peers[each].boot if each in peers else "" for each in nodes}
