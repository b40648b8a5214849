"""Where the node is that makes members of a cluster, as Bonjour says."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from typing import Protocol

from elasticd.shell.network import interfaces
from elasticd.shell.network.bonjour import Announcement
from elasticd.shell.network.mdns import Mdns

FIND_SECONDS = 3.0
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
) -> tuple[str, ...]:
    """The addresses of whoever says that it makes members of the cluster: nothing but a hint.

    Args:
        hosts: this machine's addresses, on whose networks it is looked.
        seconds: how long it is waited for the first.

    Raises:
        OSError: there is no multicast.
    """
    until = time.monotonic() + seconds
    with closing(opened(hosts)) as listening:
        names = listening.browse()
        while True:
            found = listening.find(names.so_far(), ask=True)
            meant = [each for each in found if each.makes_members and each.is_of(cluster_id)]
            near = set(beside([host for each in meant for host in each.hosts], hosts))
            every = (f"{host}:{each.port}" for each in meant for host in each.hosts if host in near)
            if addresses := tuple(dict.fromkeys(every)):
                return addresses
            if time.monotonic() >= until:
                return ()
            time.sleep(_LOOK_SECONDS)
