"""How fast nodes are, as it was measured before a job begins: told to the control plane a while
after its turn has come, as by shell/control/firstshares.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from elasticd.core.words.effects import SpeedsMeasured
from elasticd.core.words.records import JobRecord

if TYPE_CHECKING:
    from .cluster import Cluster
    from .host import Host

_SECONDS = (0.0, 2.0)
_SLOWNESS = (1.0, 1.0, 1.5, 4.0)


class Measured:
    """Of one cluster. What was measured may be wrong by now."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def persisted(self, host: Host, record: Any) -> None:
        """The record is on the host's disk."""
        chance = host.chance("measured")
        begins = isinstance(record, JobRecord) and record.state == "running"
        if not (self.cluster.setup.measured and begins):
            return
        boot = host.boot
        seconds = {node: chance.choice(_SLOWNESS) for node in self.cluster.hosts}
        told = SpeedsMeasured(record.id, seconds, "as it was measured")

        def tell() -> None:
            if host.node is not None and host.boot == boot:
                host.post(told)

        self.cluster.after(chance.uniform(*_SECONDS), tell)
