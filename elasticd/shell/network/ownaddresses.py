"""Where this node is to be found, if its elasticd.toml leaves that to the daemon.

``listen = "0.0.0.0:7070"`` listens on all interfaces. Without ``advertise`` the others are told the
addresses that the machine has then. One that comes later is told as the daemon begins anew; one
that goes is a link that is lost, and works again when it is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from elasticd.settings.config import NodeConfig, split_address
from elasticd.shell.network import interfaces

EVERYWHERE = "0.0.0.0"
ALONE = "127.0.0.1"
LOOK_SECONDS = 5.0
AGAIN_SECONDS = 60.0
"""An interface that comes and goes makes a daemon begin anew no more often."""
MOST = 8
"""More addresses than this are not told."""


def are_found(settings: NodeConfig) -> bool:
    """Whether the daemon has to find where it can be reached."""
    return not settings.advertise and split_address(settings.listen)[0] == EVERYWHERE


def hosts() -> tuple[str, ...]:
    """The addresses by which others may reach this machine now, best first."""
    return interfaces.usable(interfaces.addresses(), interfaces.this_hardware())[:MOST]


def found(settings: NodeConfig) -> NodeConfig:
    """``settings``, with the addresses that others are to be told. Without a network it is the one
    that only this machine reaches. May block for seconds where a Mac's tools hang."""
    if not are_found(settings):
        return settings
    port = split_address(settings.listen)[1]
    return replace(settings, advertise=tuple(f"{h}:{port}" for h in hosts() or (ALONE,)))


@dataclass(slots=True)
class AddressWatch:
    """Looks for addresses that come. ``came`` is told of them, once."""

    settings: NodeConfig
    """With the addresses that were found (:func:`found`)."""
    came: Callable[[tuple[str, ...]], None]
    hosts: Callable[[], tuple[str, ...]] = hosts
    _last: tuple[str, ...] = field(init=False, default=())

    async def rounds(self) -> None:
        """Until something has come."""
        await asyncio.sleep(self.pause_seconds)
        new: tuple[str, ...] = ()
        while not new:
            await asyncio.sleep(LOOK_SECONDS)
            new = await asyncio.to_thread(self.look)
        self.came(new)

    @property
    def pause_seconds(self) -> float:
        """Before the first look. Who can't be reached at all has nothing to lose."""
        return AGAIN_SECONDS if self._known - {ALONE} else 0.0

    @property
    def _known(self) -> set[str]:
        return {split_address(address)[0] for address in self.settings.advertise}

    def look(self) -> tuple[str, ...]:
        """What has come, and was there at the last look, too."""
        before, self._last = self._last, self.hosts()
        return tuple(host for host in self._last if host in before and host not in self._known)
