"""Faults at a chosen moment, for tests that want one history and not many."""

from __future__ import annotations

from collections.abc import Callable

from .cluster import Cluster
from .faults import Injector
from .trainer import Trainer

Script = Callable[[Cluster, Injector], None]


def when(cluster: Cluster, ready: Callable[[], bool], action: Callable[[], object]) -> None:
    """Do ``action`` as soon as ``ready()``, looked at every millisecond of simulated time."""

    def look() -> None:
        if ready():
            action()
        else:
            cluster.after(0.001, look)

    cluster.after(0.0, look)


def newest(cluster: Cluster) -> int:
    return max((step for c in cluster.checkers.commits.values() for _, step in c.times), default=-1)


def at_step(step: int, action: Callable[[Cluster, Injector], object]) -> Script:
    """A script that does ``action`` once, when ``step`` is committed."""

    def script(cluster: Cluster, injector: Injector) -> None:
        when(cluster, lambda: newest(cluster) >= step, lambda: action(cluster, injector))

    return script


def kill_who_has_answered(cluster: Cluster, injector: Injector) -> None:
    """Break the ring, and kill a trainer between what it says that it holds and the next world."""
    answered: list[Trainer] = []

    def look() -> bool:
        for host in cluster.living():
            assert host.node is not None
            if host.node.views.leading:
                continue  # It would know before it forms the world.
            for each in host.node.members.values():
                child = host.children.get(each.answerer) if each.answerer is not None else None
                if isinstance(child, Trainer) and child.point is not None:
                    answered.append(child)
        return bool(answered)

    def strike() -> None:
        injector.inject("reducer")
        when(cluster, look, lambda: answered[0].kill())

    when(cluster, lambda: newest(cluster) >= 10, strike)
