"""Where this node is to be found, if its elasticd.toml leaves that to the daemon.

``listen = "0.0.0.0:7070"`` listens on all interfaces. Without ``advertise`` the others are told the
addresses that the machine has, and of those that come and go while the daemon runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import psutil
import structlog

from elasticd.core.words.records import Path
from elasticd.settings.config import NodeConfig, split_address
from elasticd.shell.network import interfaces
from elasticd.shell.network.interfaces import Hardware, Kind
from elasticd.types import NodeId

EVERYWHERE = "0.0.0.0"
ALONE = "127.0.0.1"
LOOK_SECONDS = 5.0
LOOKS = 2
"""For so many looks an address has to be there, or to be missing, before the others are told."""
MOST_LOOKS = 64
"""... and for so many at most if it has come and gone often: five minutes."""
FORGIVEN_LOOKS = 720
"""After so many looks without a change, an hour, that is forgotten."""
MOST_REMEMBERED = 64
MOST = 8
"""More addresses than this are not told."""

log = structlog.get_logger(__name__)


def listens_everywhere(settings: NodeConfig) -> bool:
    """Whether whoever reaches this machine reaches the daemon."""
    return split_address(settings.listen)[0] == EVERYWHERE


def are_found(settings: NodeConfig) -> bool:
    """Whether the daemon has to find where it can be reached."""
    return not settings.advertise and listens_everywhere(settings)


@dataclass(slots=True)
class KnownHardware:
    """Remembers what interfaces are made of: a Mac is asked again only when there are others. While
    it doesn't answer, the last answer holds, and it is asked at the next look, and then after twice
    as many each time."""

    asked: Hardware = field(default_factory=interfaces.this_hardware)
    _names: frozenset[str] = frozenset()
    _kinds: Mapping[str, Kind] = field(default_factory=dict)
    _pause: int = 0
    """So many looks lie between two questions; 0: it has answered."""
    _left: int = 0

    def kinds(self, names: Sequence[str]) -> Mapping[str, Kind]:
        if (now := frozenset(names)) != self._names:
            self._names, self._pause, self._left = now, 1, 1
        if self._pause:
            self._left -= 1
            if not self._left:
                self._ask(names)
        return self._kinds

    def _ask(self, names: Sequence[str]) -> None:
        answer = self.asked.kinds(names)
        if answer is not None:
            self._kinds, self._pause = answer, 0
        else:
            self._left = self._pause
            self._pause = min(self._pause * 2, MOST_LOOKS)


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
    """Follows the addresses of this machine while the daemon runs. One that comes and goes again
    and again has to be there longer each time, as all others are told of each change.

    Attributes:
        told: what the others know.
        changed: is told of all that there are, best first, when one has come or gone.
        look: finds those that there are, given those that were told.
    """

    told: tuple[str, ...]
    changed: Callable[[tuple[str, ...]], None]
    look: Callable[[Sequence[str]], tuple[str, ...]]
    _looks: dict[str, int] = field(default_factory=dict)
    """For how many looks an address has been there that was not told, or the other way round."""
    _went: dict[str, int] = field(default_factory=dict)
    """How often each has gone of late."""
    _quiet: int = 0
    """Looks since the last change."""
    _otherwise: int = 0
    """For how many looks the same addresses have had another order."""

    async def rounds(self) -> None:
        """Look again and again. What fails is logged: the next look may do better."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                found = await asyncio.to_thread(self.look, self.told)
            except (OSError, ValueError, psutil.Error) as error:
                log.warning("this machine's addresses can't be seen now", reason=str(error))
            else:
                self.seen(found)

    def seen(self, found: tuple[str, ...]) -> None:
        """What comes has to be there for some looks, and what goes to be missing. Who has no
        address has nobody to tell it to."""
        told = self.told
        differ = sorted(set(found).symmetric_difference(told))
        self._looks = {host: self._looks.get(host, 0) + 1 for host in differ}
        self._quiet += 1
        if self._quiet >= FORGIVEN_LOOKS:
            self._went.clear()
        lost = not set(found).intersection(told)
        now = [host for host in found if host in told or self._has_come(host, lost=lost)]
        now += [host for host in told if host in self._looks and self._looks[host] < LOOKS]
        # Which is the best may be known only later, where a Mac didn't say at first.
        otherwise = not differ and tuple(now) != told
        self._otherwise = self._otherwise + 1 if otherwise else 0
        alike = set(now) == set(told) and self._otherwise < LOOKS
        if not found or not now or alike:
            return
        self._remember_gone(set(told).difference(now))
        for host in set(told).symmetric_difference(now):
            del self._looks[host]
        self.told, self._quiet, self._otherwise = tuple(now), 0, 0
        self.changed(self.told)

    def _has_come(self, host: str, *, lost: bool) -> bool:
        """``lost``: none of those is there that the others know."""
        needed = LOOKS if lost else min(LOOKS << self._went.get(host, 0), MOST_LOOKS)
        return self._looks[host] >= needed

    def _remember_gone(self, hosts: set[str]) -> None:
        for host in sorted(hosts):
            self._went[host] = min(self._went.pop(host, 0) + 1, MOST_LOOKS)
        while len(self._went) > MOST_REMEMBERED:
            del self._went[next(iter(self._went))]
