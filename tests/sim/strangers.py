"""Somebody who knows nothing connects to a ring that comes up, before the true neighbour does."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from elasticd.core.words.records import World
from elasticd.types import NodeId, Secret

if TYPE_CHECKING:
    from .cluster import Cluster
    from .ring import Reducer


_QUICK = 0.3


@dataclass(slots=True)
class Strangers:
    """Who waits where, and what the members of worlds were told to keep them out."""

    cluster: Cluster
    waiting: dict[NodeId, int] = field(default_factory=dict)
    """At the ports of these nodes, for so many rings."""
    secrets: dict[str, Secret] = field(default_factory=dict)
    """By generation."""
    owners: dict[Secret, str] = field(default_factory=dict)

    def come(self, node: NodeId, times: int) -> None:
        self.cluster.say("faults", f"a stranger waits for {times} rings at {node}")
        self.waiting[node] = times

    def leave(self, node: NodeId) -> None:
        self.waiting.pop(node, None)

    def told(self, world: World, secret: Secret) -> None:
        """A rank was told this secret of the world, or that there is none."""
        name, broken = str(world.generation), self.cluster.checkers.broken
        if self.secrets.setdefault(name, secret) != secret:
            broken(f"the ranks of {name} were told different secrets")
        if not secret:
            if not self.cluster.mixture.mixed:
                broken(f"the ranks of {name} were told no secret")
            return
        if self.owners.setdefault(secret, name) != name:
            broken(f"the ranks of {name} were told the secret of {self.owners[secret]}")

    def is_quick(self, reducer: Reducer) -> bool:
        """A rank listens: whether somebody is let in before its daemon has seen that."""
        if not self.waiting.get(reducer.host.name):
            return False
        if reducer.chance("quick strangers").random() >= _QUICK:
            return False
        self._takes(reducer, "before its daemon sees that it listens")
        if not reducer.host.release.knows_secrets:
            self.leave(reducer.host.name)  # nobody learns of it: one such hang is enough
        return True

    def _takes(self, reducer: Reducer, how: str) -> None:
        node = reducer.host.name
        self.waiting[node] -= 1
        self.cluster.seen["strangers"] += 1
        self.cluster.say("faults", f"a stranger takes a link of {node} in a ring: {how}")
        assert reducer.ring is not None
        reducer.ring.deadlocked = True

    def look(self, reducer: Reducer) -> None:
        """A rank listens. Who comes first is its left neighbour, as MLX has it."""
        node, ring, rank = reducer.host.name, reducer.ring, reducer.rank
        assert ring is not None
        if not self.waiting.get(node):
            return
        chance = reducer.chance("strangers")
        how = chance.choice(("wrong", "leaves", "silent", "blocks"))
        self._takes(reducer, how)
        if not reducer.secret:
            self.leave(node)  # nobody learns who it was: one such hang is enough
        elif how == "blocks" and rank == 0:
            ring.blocked = True
        else:
            silent = how in ("silent", "blocks")
            seconds = reducer.greet_seconds if silent else chance.uniform(0.005, 0.05)
            text = f"a stranger that is {how} has shown nothing"
            reducer.later(seconds, partial(reducer.breaks, text, rank, how == "wrong"))
