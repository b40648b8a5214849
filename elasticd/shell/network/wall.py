"""Neighbours to which this machine itself lets nothing out.

macOS answers "no route to host" within milliseconds where a program lacks the permission for the
local network (Apple's TN3179), and where a firewall refuses. For a peer of another network a router
may say that. For one of an own network nobody else can: a peer that is off would not answer for
seconds. So the fault is here, and no peer is to blame.

But for once: when nobody has answered for a while who has that address, the next packet is
refused at once, and those behind it with "host is down" (XNU, ``bsd/netinet/in_arp.c``). So it
takes several refusals in a row.

Addresses that machines give themselves (169.254.…) look like one network, and each cable has its
own. So of a peer at the end of another cable the same may be said, and nothing is wrong here.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import psutil

from elasticd.settings.config import split_address
from elasticd.shell.clock import monotonic_seconds

AT_ONCE_SECONDS = 0.1
"""Nobody who is asked over a cable, and is off, is given up so soon."""
REFUSALS, LASTING_SECONDS = 3, 10.0
"""So many in a row, the last so long after the first, are no accident."""
BY_HAND = (
    "in Apple's Terminal, or over ssh, in a session that stays open: not tmux, screen or nohup"
)
"""Apple's TN3179: what runs from Terminal and over ssh is let out, with its children. In the field
it is so while the session lives that it was started in."""
LET_OUT = (
    "install the service of the whole Mac ('sudo elasticctl service install'), which alone needs"
    f" nothing; or run it {BY_HAND}; or open its firewall; or allow what runs it in System Settings"
    " > Privacy & Security > Local Network, if it is in that list: that may not help a Python"
)
"""Another terminal is an app like any. It may be missing there, or be on and refused all the same;
an agent's Python, too (reports from the field, 2026)."""
CURE = f"this Mac lets nothing out to it, though it is in its own network: {LET_OUT}"


def own_networks() -> list[ipaddress.IPv4Network]:
    """Those in which this machine has an address."""
    return [
        ipaddress.IPv4Network(f"{each.address}/{each.netmask}", strict=False)
        for found in psutil.net_if_addrs().values()
        for each in found
        if each.family == socket.AF_INET and each.netmask
    ]


@dataclass(slots=True)
class Wall:
    """Addresses at which it was met, until somebody answers there, or it is dialled no more."""

    system: str = sys.platform
    networks: Callable[[], Iterable[ipaddress.IPv4Network]] = own_networks
    now: Callable[[], float] = monotonic_seconds
    _at: dict[str, tuple[int, float, float]] = field(default_factory=dict)
    """How often in a row, and when first and last."""

    def met(self, address: str, seconds: float) -> bool:
        """There was no route to ``address`` after so long. Whether that is this machine's doing."""
        if not self.is_own(address, seconds):
            self.passed(address)
            return False
        times, first, _ = self._at.get(address, (0, self.now(), 0.0))
        self._at[address] = times + 1, first, self.now()
        return self._stands(address)

    def is_own(self, address: str, seconds: float) -> bool:
        """Whether it looks like this machine's doing, this time."""
        at_once = self.system == "darwin" and seconds <= AT_ONCE_SECONDS
        return at_once and self._is_near(address)

    def passed(self, address: str) -> None:
        """Somebody was reached there, or failed in another way, or nobody is looked for there any
        more."""
        self._at.pop(address, None)

    def told(self) -> Sequence[str]:
        """What people are told: the addresses, and then the cure."""
        return [f"{address}: {CURE}" for address in sorted(self._at) if self._stands(address)]

    def _stands(self, address: str) -> bool:
        times, first, last = self._at[address]
        return times >= REFUSALS and last - first >= LASTING_SECONDS

    def _is_near(self, address: str) -> bool:
        try:
            host = ipaddress.IPv4Address(split_address(address)[0])
        except ValueError:  # a name: what it stands for is not known here
            return False
        own = list(self.networks())
        given = [each for each in own if not (each.is_link_local or each.is_loopback)]
        if host.is_link_local and given:
            return False  # a wall shows at the other addresses, too
        return any(host in network for network in own)
