"""Tells the networks of this machine where the daemon is, and looks there for members that it does
not reach (bonjour.py). What is heard is a hint, and dialled like any other address."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from elasticd.shell.complaints import Complaints
from elasticd.shell.network import interfaces
from elasticd.shell.network.bonjour import Announcement, Bonjour
from elasticd.shell.network.dialling import FORGET_SECONDS

LOOK_SECONDS = 2.0
LONGEST_SECONDS = 64.0
"""Between two questions to the network for nodes that stay away, which double from LOOK_SECONDS.
What they say by themselves when they come back is heard without."""
TRY_AGAIN_SECONDS = 30.0
"""After a network has refused."""
MOST_HINTS = 256
"""So many addresses are dialled within FORGET_SECONDS, whatever is announced."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class BonjourWatch:
    """Of one daemon. Runs in the event loop; what blocks is done in threads.

    Attributes:
        own: what this daemon says now; None: nothing, as no other machine reaches it.
        missing: the names of members that are not connected.
        dial: tries addresses, which nobody vouches for.
        opened: this machine's end, on the networks of some of its addresses.
        here: those of some hosts that this machine has now.
        beside: those of some hosts that are on the network of one of this machine's addresses.
    """

    own: Callable[[], Announcement | None]
    missing: Callable[[], Collection[str]]
    dial: Callable[[Iterable[str]], None]
    opened: Callable[[Sequence[str]], Bonjour]
    here: Callable[[Iterable[str]], tuple[str, ...]] = interfaces.here
    beside: Callable[[Iterable[str], Collection[str]], Iterable[str]] = interfaces.beside
    clock: Callable[[], float] = time.monotonic
    _complain: Complaints = field(default_factory=lambda: Complaints("bonjour"))
    _open: Bonjour | None = None
    _said: Announcement | None = None
    _here: tuple[str, ...] = ()
    """On whose networks it was said."""
    _asked_for: frozenset[str] = frozenset()
    _ask_at: float = 0.0
    _pause: float = LOOK_SECONDS
    _hints: dict[str, float] = field(default_factory=dict)
    """Addresses that were heard of, and when first."""

    async def rounds(self) -> None:
        """Until cancelled."""
        try:
            while True:
                pause = LOOK_SECONDS
                try:
                    await self.look()
                except OSError as error:
                    self._complain("this machine's networks", str(error))
                    pause = TRY_AGAIN_SECONDS
                await asyncio.sleep(pause)
        finally:
            await self._close()

    async def look(self) -> None:
        """Say what is new, and look for who is missing.

        Raises:
            OSError: the network takes nothing.
        """
        said = self.own()
        here = () if said is None else await asyncio.to_thread(self.here, said.hosts)
        # An address that comes, late or back, is of a network on which nothing is heard yet.
        if (said, here) != (self._said, self._here):
            await self._close()
            if said is not None:
                await self._begin(said, here)
        if self._open is None or said is None or not (missing := frozenset(self.missing())):
            return
        ask = self._is_due(missing)
        found = await asyncio.to_thread(self._open.find, missing, ask=ask)
        self._dial(found, said)

    async def _begin(self, said: Announcement, here: tuple[str, ...]) -> None:
        self._open = await asyncio.to_thread(self.opened, said.hosts)
        await asyncio.to_thread(self._open.announce, said)
        self._said, self._here = said, here
        log.info("announced by Bonjour", addresses=said.addresses)

    async def _close(self) -> None:
        self._said, self._here = None, ()
        opened, self._open = self._open, None
        if opened is not None:
            await asyncio.to_thread(opened.close)

    def _is_due(self, missing: frozenset[str]) -> bool:
        now = self.clock()
        if not missing <= self._asked_for:
            self._ask_at, self._pause = now, LOOK_SECONDS
        self._asked_for = missing
        if now < self._ask_at:
            return False
        self._ask_at, self._pause = now + self._pause, min(2 * self._pause, LONGEST_SECONDS)
        return True

    def _dial(self, found: Sequence[Announcement], said: Announcement) -> None:
        """Those on the networks to which this machine says where it is: nobody has it dial
        others."""
        near = set(self.beside([host for each in found for host in each.hosts], said.hosts))
        now = self.clock()
        self._hints = {a: at for a, at in self._hints.items() if now - at < FORGET_SECONDS}
        for each in found:
            for host, address in zip(each.hosts, each.addresses, strict=True):
                if host not in near or address in self._hints:
                    continue
                if len(self._hints) == MOST_HINTS:
                    break
                self._hints[address] = now
                log.info("looked for where Bonjour says", address=address)
        self.dial([a for each in found for a in each.addresses if a in self._hints])
