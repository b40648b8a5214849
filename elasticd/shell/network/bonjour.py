"""What daemons announce to their networks by Bonjour (multicast DNS), and what others make of it.

It is a hint where a daemon may be, and never more: anybody on a network can announce anything. Who
answers there has to show a member's certificate, as everywhere. Nothing is announced that a
stranger would not see in a handshake: the cluster's authority, how the certificate calls the node,
and whether this is the node that makes members. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from elasticd.settings.config import split_address

SERVICE = "_elasticd._tcp.local."
MOST_HOSTS = 8
"""So many addresses of one daemon are taken."""
_CLUSTER_LETTERS = 32
_NAME, _CLUSTER = re.compile("[0-9a-f]{32}"), re.compile(f"[0-9a-f]{{{_CLUSTER_LETTERS}}}")


@dataclass(frozen=True, slots=True)
class Announcement:
    """What one daemon says of itself, or somebody in its place.

    Attributes:
        name: how the node's certificate calls it: members know who that is.
        cluster: the first letters of the cluster's id, which a join token has, too.
        makes_members: join tokens are taken there.
        hosts: IPv4 addresses.
        port: where it listens, on each of them.
    """

    name: str
    cluster: str
    makes_members: bool
    hosts: tuple[str, ...]
    port: int

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(f"{host}:{self.port}" for host in self.hosts)

    def is_of(self, cluster_id: str) -> bool:
        """Whether it says that it belongs to that cluster."""
        return self.cluster == cluster_id[:_CLUSTER_LETTERS]

    def text(self) -> dict[str, str]:
        """What stands in the text record."""
        return {"cluster": self.cluster, "members": "made" if self.makes_members else ""}


def announced(
    name: str, cluster_id: str, makes_members: bool, addresses: Sequence[str]
) -> Announcement | None:
    """What a daemon says that is reached at ``addresses``, best first. None: at no number that
    others can reach, so it says nothing."""
    reached = [split_address(each) for each in addresses]
    known = [(host, port) for host, port in reached if _is_reachable(host)]
    if not known:
        return None
    port = known[0][1]
    hosts = tuple(dict.fromkeys(host for host, each in known if each == port))[:MOST_HOSTS]
    return Announcement(name, cluster_id[:_CLUSTER_LETTERS], makes_members, hosts, port)


def is_name(text: str) -> bool:
    """Whether a daemon announces itself under such a name. Others make no sense, and some can't
    even be asked for."""
    return _NAME.fullmatch(text) is not None


def read(
    name: str, text: Mapping[bytes, bytes | None], hosts: Iterable[str], port: int | None
) -> Announcement | None:
    """What was announced under ``name``. None: it makes no sense."""
    cluster = (text.get(b"cluster") or b"").decode("ascii", "replace")
    usable = tuple(dict.fromkeys(filter(_is_reachable, hosts)))[:MOST_HOSTS]
    if not is_name(name) or not _CLUSTER.fullmatch(cluster) or not usable:
        return None
    if port is None or not 1 <= port <= 65535:
        return None
    return Announcement(name, cluster, text.get(b"members") == b"made", usable, port)


def _is_reachable(host: str) -> bool:
    try:
        found = ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return not (found.is_loopback or found.is_multicast or found.is_unspecified)


class Bonjour(Protocol):
    """This machine's end of it. Each call may block for a second."""

    def announce(self, said: Announcement) -> None:
        """Say it from now on.

        Raises:
            OSError: the network takes nothing.
        """

    def find(self, names: Collection[str], *, ask: bool) -> list[Announcement]:
        """What is announced under these names. With ``ask`` the network is asked for those of
        which nothing is known."""

    def close(self) -> None:
        """Say that it is over."""
