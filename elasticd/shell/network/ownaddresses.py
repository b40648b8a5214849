"""Where this node is to be found, if its elasticd.toml leaves that to the daemon.

``listen = "0.0.0.0:7070"`` listens on all interfaces. Without ``advertise`` the others are told the
addresses that the machine has, and of those that come and go while the daemon runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from elasticd.core.words.records import Path
from elasticd.settings.config import NodeConfig, split_address
from elasticd.shell.network import interfaces
from elasticd.shell.network.interfaces import Hardware, Kind
from elasticd.types import NodeId

EVERYWHERE = "0.0.0.0"
ALONE = "127.0.0.1"
LOOK_SECONDS = 5.0
MOST = 8
"""More addresses than this are not told."""

log = structlog.get_logger(__name__)


def are_found(settings: NodeConfig) -> bool:
    """Whether the daemon has to find where it can be reached."""
    return not settings.advertise and split_address(settings.listen)[0] == EVERYWHERE


@dataclass(slots=True)
class KnownHardware:
    """Remembers what interfaces are made of: a Mac is asked again only when there are others."""

    asked: Hardware = field(default_factory=interfaces.this_hardware)
    _names: frozenset[str] = frozenset()
    _kinds: Mapping[str, Kind] = field(default_factory=dict)

    def kinds(self, names: Sequence[str]) -> Mapping[str, Kind]:
        if (now := frozenset(names)) != self._names:
            self._names, self._kinds = now, self.asked.kinds(names)
        return self._kinds


@dataclass(slots=True)
class OwnHosts:
    """Looks for the addresses of this machine. May block for seconds where a Mac's tools hang."""

    hardware: KnownHardware = field(default_factory=KnownHardware)
    addresses: Callable[[], interfaces.Addresses] = interfaces.addresses

    def look(self, told: Sequence[str] = ()) -> tuple[str, ...]:
        """Those by which others may reach it now, best first. Of too many the ones that were told
        stay."""
        found = interfaces.reachable(self.addresses(), self.hardware)
        kept = sorted(found, key=lambda host: host not in told)[:MOST]
        return tuple(host for host in found if host in kept)

    def fill_in(self, settings: NodeConfig) -> NodeConfig:
        """``settings``, with the addresses that others are to be told. Without a network it is the
        one that only this machine reaches."""
        if not are_found(settings):
            return settings
        return replace(settings, advertise=advertised(settings, self.look() or (ALONE,)))


def found(settings: NodeConfig) -> NodeConfig:
    """``settings``, with the addresses of this machine where they name none."""
    return OwnHosts().fill_in(settings)


def hosts() -> tuple[str, ...]:
    """The addresses by which others may reach this machine now, best first."""
    return OwnHosts().look()


def advertised(settings: NodeConfig, hosts: Sequence[str]) -> tuple[str, ...]:
    """The addresses of a daemon on these hosts."""
    port = split_address(settings.listen)[1]
    return tuple(f"{host}:{port}" for host in hosts)


def as_paths(me: NodeId, hosts: Sequence[str]) -> tuple[Path, ...]:
    """These hosts as the control plane hears of them."""
    return tuple(Path(me, host, True) for host in hosts)


@dataclass(slots=True)
class AddressWatch:
    """Follows the addresses of this machine while the daemon runs.

    Attributes:
        told: what the others know.
        changed: is told of all that there are, best first, when one has come or gone.
        look: finds those that there are, given those that were told.
    """

    told: tuple[str, ...]
    changed: Callable[[tuple[str, ...]], None]
    look: Callable[[Sequence[str]], tuple[str, ...]]
    _last: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._last = self.told

    async def rounds(self) -> None:
        """Look again and again. What fails is logged: the next look may do better."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                self.seen(await asyncio.to_thread(self.look, self.told))
            except Exception:
                log.exception("this machine's addresses could not be followed")

    def seen(self, found: tuple[str, ...]) -> None:
        """What comes has to be there twice, and what goes to be missing twice. Who has no address
        has nobody to tell it to."""
        last, self._last = self._last, found
        if not found:
            return
        now = [host for host in found if host in self.told or host in last]
        now += [host for host in self.told if host not in found and host in last]
        if set(now) != set(self.told) and now:
            self.told = tuple(now)
            self.changed(self.told)
