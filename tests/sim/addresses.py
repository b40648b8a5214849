"""Nodes with two addresses each, of which one may die while the other goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elasticd.core.words import effects as e
from elasticd.core.words.records import Path, World
from elasticd.types import NodeId

if TYPE_CHECKING:
    from .cluster import Cluster
    from .host import Host

_NOTICE_SECONDS = (0.3, 1.0)
"""After so long pings have found out how an address is."""


@dataclass(slots=True)
class Addresses:
    """Which addresses are dead, and what the nodes know of that."""

    cluster: Cluster
    dead: set[str] = field(default_factory=set)

    def of(self, node: NodeId) -> tuple[str, ...]:
        """A node's addresses, without ports, best first; none where there is only one."""
        count = self.cluster.setup.addresses
        return tuple(f"{node}.{n}" for n in range(count)) if count > 1 else ()

    def lose(self, address: str) -> Callable[[], None]:
        """An address is dead; returns what ends that. Rings that go through it hang."""
        self.dead.add(address)
        for ring in list(self.cluster.rings.values()):
            if not ring.gone and self.severs(ring.world):
                ring.deadlocked = True
        self._notice()

        def back() -> None:
            self.dead.discard(address)
            self._notice()

        return back

    def severs(self, world: World) -> bool:
        """Whether a ring of ``world`` goes through an address that is dead."""
        return bool(self.dead) and any(h.rpartition(":")[0] in self.dead for h in world.hosts)

    def measure(self, host: Host) -> None:
        """A daemon has pinged all others."""
        for node in self.cluster.hosts:
            if node != host.name:
                host.post(e.Paths(node, self._paths(node)))

    def met(self, host: Host, node: NodeId) -> None:
        """A connection is there, and with it what is known of its addresses."""
        if self.cluster.setup.addresses > 1:
            host.post(e.Paths(node, self._paths(node)))

    def _paths(self, node: NodeId) -> tuple[Path, ...]:
        return tuple(Path(node, a, a not in self.dead) for a in self.of(node))

    def _notice(self) -> None:
        for host in self.cluster.living():
            self.notice(host)

    def notice(self, host: Host) -> None:
        """A daemon finds out soon how the others' addresses are."""
        if self.cluster.setup.addresses > 1:
            chance = self.cluster.chances.of("pings", host.name)
            self.cluster.after(chance.uniform(*_NOTICE_SECONDS), lambda: self.measure(host))
