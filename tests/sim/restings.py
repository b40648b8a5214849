"""Jobs that come to rest: whoever says so knows of each step that a trainer near it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elasticd.core.words import effects as e

from .trainer import Trainer

if TYPE_CHECKING:
    from .cluster import Cluster
    from .host import Host

_AHEAD = 1
"""So many steps more than are committed a trainer may have applied."""


def forgotten_steps(cluster: Cluster, host: Host, emit: e.Emit) -> str:
    """What is wrong with the word of a leader that a job rests, or nothing."""
    node = host.node
    view = node.views.view if node is not None else None
    rest = emit.fields["step"]
    for name in view.members if view is not None else ():
        other = cluster.hosts[name]
        if other.node is None or other.paused:
            continue  # its trainer lives, and nobody can be told of it
        for child in other.children.values():
            if not isinstance(child, Trainer) or child.job != emit.job or child.point is None:
                continue
            if child.alive and child.point.step > rest + _AHEAD:
                return f"{emit.job} rests at {rest}, and {name} holds step {child.point.step}"
    return ""
