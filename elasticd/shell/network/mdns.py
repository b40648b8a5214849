"""Bonjour by the package zeroconf, which comes with ``elasticd[discovery]``.

It answers and asks in a thread of its own, so no packet of a stranger holds the daemon's loop up.
What it remembers is bounded by the package (10,000 records). Questions are to be answered to all:
an answer to this machine alone comes to one of those who share the port, as macOS itself does
(RFC 6762, section 15.1).
"""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import logging
import socket
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elasticd.shell.network import bonjour, interfaces
from elasticd.shell.network.bonjour import SERVICE, Announcement
from elasticd.shell.network.wall import LET_OUT

if TYPE_CHECKING:
    from zeroconf import ServiceBrowser, Zeroconf

PACKAGE = "zeroconf"
MOST_ASKED = 64
"""Of so many daemons it is asked at once where they are."""
_ASK_MILLISECONDS = 500
_ANSWER_SECONDS = 5.0
_GROUP = ("224.0.0.251", 5353)
_ASKS_NOTHING = bytes(12)
"""A message's head alone."""


def is_installed() -> bool:
    return importlib.util.find_spec(PACKAGE) is not None


def knock(host: str) -> None:
    """Send something to all who hear Bonjour on the network of this machine's address ``host``.

    Raises:
        OSError: the system lets nothing out.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(host))
        end.sendto(_ASKS_NOTHING, _GROUP)


def _require_way_out(hosts: Sequence[str], knocks: Callable[[str], None], system: str) -> None:
    """zeroconf itself says nothing of what doesn't leave."""
    refused = OSError()
    for host in hosts:
        try:
            knocks(host)
        except OSError as error:
            refused = error
        else:
            return
    walled = system == "darwin" and refused.errno == errno.EHOSTUNREACH
    cure = f": {LET_OUT}" if walled else ""
    raise OSError(f"nothing goes out to {_GROUP[0]}: {refused.strerror}{cure}")


@dataclass(slots=True)
class Mdns:
    """On the networks of some of this machine's addresses. A :class:`bonjour.Bonjour`."""

    _zeroconf: Zeroconf

    @classmethod
    def on(
        cls,
        hosts: Sequence[str],
        knocks: Callable[[str], None] = knock,
        system: str = sys.platform,
    ) -> Mdns:
        """Listen on the networks of those of these addresses that the machine has. Loads the
        package, which takes 0.05 s.

        Raises:
            OSError: it has none of them, or multicast leaves by none.
        """
        there = list(interfaces.here(hosts))  # of others zeroconf would leak a socket
        if not there:
            raise OSError(f"this machine has no address of {', '.join(hosts) or 'its own'}")
        _require_way_out(there, knocks, system)
        logging.getLogger(PACKAGE).setLevel(logging.CRITICAL)  # strangers fill no log
        from zeroconf import Error, IPVersion, Zeroconf

        try:
            made = Zeroconf(there, ip_version=IPVersion.V4Only, use_asyncio=False)
        except Error as error:
            raise OSError(f"no multicast: {error}") from None
        if made.loop is not None:
            # A name that a stranger announces may be none to repeat in a question.
            made.loop.call_soon_threadsafe(made.loop.set_exception_handler, lambda *_: None)
        return cls(made)

    def announce(self, said: Announcement) -> None:
        """Raises OSError: the network takes nothing."""
        from zeroconf import Error, ServiceInfo

        info = ServiceInfo(
            SERVICE,
            f"{said.name}.{SERVICE}",
            addresses=[socket.inet_aton(host) for host in said.hosts],
            port=said.port,
            properties=said.text(),
            server=f"{said.name}.local.",  # else it would be the host's own name
        )
        try:
            # Nobody else has that name. Who lies about it has no certificate of it.
            self._zeroconf.register_service(info, cooperating_responders=True)
        except Error as error:
            raise OSError(f"it could not be announced: {type(error).__name__}") from None

    def find(self, names: Collection[str], *, ask: bool) -> list[Announcement]:
        """What is announced under these names, of :data:`MOST_ASKED`."""
        loop = self._zeroconf.loop
        if loop is None:
            return []
        some = sorted(names)[:MOST_ASKED]
        asked = asyncio.run_coroutine_threadsafe(_find(self._zeroconf, some, ask), loop)
        try:
            return asked.result(_ANSWER_SECONDS)
        except TimeoutError:
            asked.cancel()
            return []

    def close(self) -> None:
        self._zeroconf.close()

    def browse(self) -> AnnouncedNames:
        """The names of all daemons that are announced, as they are heard. Ends with this."""
        from zeroconf import DNSQuestionType, ServiceBrowser

        names = AnnouncedNames()
        names.browser = ServiceBrowser(
            self._zeroconf, SERVICE, handlers=[names.heard], question_type=DNSQuestionType.QM
        )
        return names


@dataclass(slots=True)
class AnnouncedNames:
    """Of daemons that announce themselves, :data:`MOST_ASKED` at most, the first to be heard.
    Anybody announces anything: what is no daemon's name is not among them."""

    browser: ServiceBrowser | None = None
    _known: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def heard(self, name: str, **_: object) -> None:
        """In the browser's thread."""
        said = name.removesuffix(f".{SERVICE}")
        with self._lock:
            if bonjour.is_name(said) and len(self._known) < MOST_ASKED:
                self._known.add(said)

    def so_far(self) -> set[str]:
        with self._lock:
            return set(self._known)


async def _find(zeroconf: Zeroconf, names: Sequence[str], ask: bool) -> list[Announcement]:
    """In its own loop."""
    from zeroconf import DNSQuestionType
    from zeroconf.asyncio import AsyncServiceInfo

    infos = {name: AsyncServiceInfo(SERVICE, f"{name}.{SERVICE}") for name in names}
    unknown = [info for info in infos.values() if not info.load_from_cache(zeroconf)]
    if ask:
        kind = DNSQuestionType.QM
        asked = (info.async_request(zeroconf, _ASK_MILLISECONDS, kind) for info in unknown)
        await asyncio.gather(*asked)
    found = (
        bonjour.read(name, info.properties, info.parsed_addresses(), info.port)
        for name, info in infos.items()
    )
    return [each for each in found if each is not None]
