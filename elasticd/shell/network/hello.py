"""What daemons say of themselves when they connect, and whether they belong together. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elasticd.errors import ProtocolError
from elasticd.types import NodeId

VERSION = 3
HELLO_BYTES = 64 * 1024
HELLO_SECONDS = 5.0
"""A hello is no longer, and comes no later."""
ADDRESSES_OF_ONE = 16
"""One daemon gives no more."""
_LONGEST_TEXT = 80
"""Of what a stranger says, shown to people."""


class Refused(ProtocolError):
    """A daemon, but none that this one may work with."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What another daemon said of itself."""

    node: NodeId
    boot: str
    address: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Identity:
    """What a daemon says of itself in its hello."""

    cluster_id: str
    cluster: str
    node: NodeId
    boot: str
    address: str
    partition: str = "available"
    addresses: tuple[str, ...] = ()
    """All that others may use, best first; empty: ``address`` only."""

    @property
    def cluster_name(self) -> str:
        """What two daemons must share to be peers."""
        return f"{self.cluster}/{self.cluster_id}"

    def frame(self) -> dict[str, Any]:
        return {
            "t": "hello",
            "version": VERSION,
            "cluster": self.cluster_name,
            "node": self.node,
            "boot": self.boot,
            "address": self.address,
            "partition": self.partition,
            "addresses": list(self.addresses or (self.address,)),
        }

    def check(self, frame: Mapping[str, Any]) -> Hello:
        """What a daemon says that may be this one's peer.

        Raises:
            Refused: it is of another version or cluster, or has another rule for partitions.
            ProtocolError: it is no hello.
        """
        names = ("node", "boot", "address")
        if frame.get("t") != "hello" or not all(isinstance(frame.get(name), str) for name in names):
            raise ProtocolError("its first frame is no hello")
        for key, mine in (("version", VERSION), ("cluster", self.cluster_name)):
            if frame.get(key) != mine:
                raise Refused(f"it is of another {key}: {_shown(frame.get(key))}")
        if (theirs := frame.get("partition")) != self.partition:
            # Which of two rules holds must not depend on who leads.
            raise Refused(
                f"{frame['node']} has partition = {_shown(theirs)} in its elasticd.toml and"
                f" this node {self.partition!r}: all nodes of a cluster must agree"
            )
        addresses = frame.get("addresses", [frame["address"]])
        if not isinstance(addresses, list) or not 1 <= len(addresses) <= ADDRESSES_OF_ONE:
            raise ProtocolError("it gives no list of addresses")
        if not all(isinstance(address, str) for address in addresses):
            raise ProtocolError("it gives an address that is no text")
        every = tuple(dict.fromkeys((*addresses, frame["address"])))
        return Hello(NodeId(frame["node"]), frame["boot"], frame["address"], every)


def _shown(value: object) -> str:
    return repr(str(value)[:_LONGEST_TEXT])
