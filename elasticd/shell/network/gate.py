"""With whom this daemon has connections, and what it says of those that it refuses."""

from __future__ import annotations

import errno
import ipaddress
from dataclasses import dataclass, field
from typing import Any

from elasticd.errors import OperationError, UsageError
from elasticd.settings.config import split_address
from elasticd.shell.complaints import Complaints
from elasticd.shell.network.hello import Hello, Identity, Refused
from elasticd.types import NodeId


@dataclass(slots=True)
class Refusals:
    """How much was refused."""

    bad_frames: int = 0
    hellos: int = 0


@dataclass(slots=True)
class Gate:
    """Judges addresses, hellos and frames.

    Attributes:
        me: what this daemon says of itself.
        insecure: addresses that are not loopback are used, too.
    """

    me: Identity
    insecure: bool
    refusals: Refusals = field(default_factory=Refusals)
    complain: Complaints = field(default_factory=lambda: Complaints("peers"))
    _shunned: dict[NodeId, str] = field(default_factory=dict)
    """Nodes whose link is cut on purpose, and where each was reached last."""

    def allows(self, host: str) -> bool:
        return self.insecure or is_loopback(host)

    def require(self, key: str, address: str) -> None:
        """Refuse a setting.

        Raises:
            UsageError: the address isn't loopback and ``insecure`` isn't set.
        """
        if not self.allows(split_address(address)[0]):
            raise UsageError(
                f"{key} = {address!r}: connections are not encrypted or authenticated yet, so only"
                " loopback addresses are used; --insecure opens others"
            )

    def is_own(self, address: str) -> bool:
        return address == self.me.address or address in self.me.addresses

    def check(self, frame: dict[str, Any]) -> Hello:
        """What another daemon says of itself.

        Raises:
            ProtocolError: it may not be a peer, or it is no daemon.
            TimeoutError: the link with it is cut on purpose.
        """
        try:
            hello = self.me.check(frame)
        except Refused:
            self.refusals.hellos += 1
            raise
        if hello.node in self._shunned:
            raise TimeoutError(errno.ETIMEDOUT, "the link is cut on purpose")
        return hello

    def shun(self, node: NodeId, address: str) -> None:
        self._shunned[node] = address

    def unshun(self, node: NodeId) -> None:
        self._shunned.pop(node, None)

    def require_link(self, address: str) -> None:
        """Refuse to fetch over a link that is cut on purpose.

        Raises:
            OperationError: it is.
        """
        if address in self._shunned.values():
            raise OperationError(f"{address} can't be reached: the link is cut on purpose")

    def count_bad(self, source: str, reason: str) -> None:
        self.refusals.bad_frames += 1
        self.complain(source, reason)

    def complain_of_namesake(self, hello: Hello, source: str) -> None:
        """Nothing is wrong with a connection from this daemon to itself."""
        if hello.boot != self.me.boot:
            self.complain(source, f"its node id {hello.node!r} is this node's, too")


def is_loopback(host: str) -> bool:
    """Whether a host name or IPv4 address is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
