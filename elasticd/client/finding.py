"""Where the node is that makes members of a cluster, as Bonjour says."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing
from typing import Protocol

from elasticd.shell.network import interfaces
from elasticd.shell.network.bonjour import Announcement
from elasticd.shell.network.mdns import Mdns

FIND_SECONDS = 3.0
MOST_TRIED = 16
"""So many addresses, whatever is announced: each may cost who asks there ten seconds."""
_LOOK_SECONDS = 0.1


class NamesHeard(Protocol):
    """Names of daemons that announce themselves."""

    def so_far(self) -> set[str]: ...


class BonjourEar(Protocol):
    """A machine's end of Bonjour that hears of everybody."""

    def browse(self) -> NamesHeard: ...

    def find(self, names: Collection[str], *, ask: bool) -> list[Announcement]: ...

    def close(self) -> None: ...


def issuers(
    cluster_id: str,
    hosts: Sequence[str],
    seconds: float = FIND_SECONDS,
    opened: Callable[[Sequence[str]], BonjourEar] = Mdns.on,
    beside: Callable[[Sequence[str], Sequence[str]], Sequence[str]] = interfaces.beside,
) -> Generator[str, None, None]:
    """The addresses of whoever says that it makes members of the cluster, as they are heard. They
    are nothing but hints, so others are looked for after each.

    Args:
        hosts: this machine's addresses, on whose networks it is looked.
        seconds: how long it is looked; what is done with each address meanwhile doesn't count.

    Raises:
        OSError: there is no multicast.
    """
    told: set[str] = set()
    with closing(opened(hosts)) as listening:
        names = listening.browse()
        until = time.monotonic() + seconds
        while True:
            found = listening.find(names.so_far(), ask=True)
            meant = [each for each in found if each.makes_members and each.is_of(cluster_id)]
            near = set(beside([host for each in meant for host in each.hosts], hosts))
            every = (f"{host}:{each.port}" for each in meant for host in each.hosts if host in near)
            fresh = [address for address in dict.fromkeys(every) if address not in told]
            began = time.monotonic()
            for address in fresh[: MOST_TRIED - len(told)]:
                told.add(address)
                yield address
            until += time.monotonic() - began
            if len(told) == MOST_TRIED or time.monotonic() >= until:
                return
            time.sleep(_LOOK_SECONDS)
