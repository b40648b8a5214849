"""Of which size a job's first shares are to be, by speeds that were measured before it began."""

from __future__ import annotations

from collections.abc import Mapping

from elasticd.types import NodeId

ALIKE = 1.25
"""Nodes that are slower than the fastest by less count as equally fast: two measurements of one
machine differ by as much."""


def relative_seconds(gflops: Mapping[NodeId, float]) -> dict[NodeId, float]:
    """How long each node takes for a grain, where the fastest takes 1; empty if none is slower.

    ``gflops``: as measured; 0: not known, and nothing is said of that node.
    """
    known = {node: speed for node, speed in gflops.items() if speed > 0}
    fastest = max(known.values(), default=0.0)
    found = {node: round(fastest / speed, 2) for node, speed in known.items()}
    found = {node: 1.0 if each < ALIKE else each for node, each in found.items()}
    return found if any(each > 1.0 for each in found.values()) else {}
