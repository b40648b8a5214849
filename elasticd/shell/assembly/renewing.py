"""This node renews its certificate when it is old, and takes no old ones: kept in the home, told to
everybody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog
import tenacity

from elasticd.core.words.connections import PutOut
from elasticd.errors import DamageError, OperationError, ProtocolError
from elasticd.shell.clock import unix_seconds
from elasticd.shell.complaints import Complaints
from elasticd.shell.control import renewing
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.storage import papers
from elasticd.shell.tasks import Tasks
from elasticd.trust.member import MemberPapers
from elasticd.trust.renewal import Renewal

log = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 30.0
"""Between two times that it asks for a certificate; it asks at once when a node connects."""
REPLACED_SECONDS = 60.0
"""After so long connections end on which an old certificate was shown. They have been replaced."""
_FAULTS = (OSError, ValueError, OperationError, ProtocolError, DamageError)


class Connections(Protocol):
    """What is done with those to other daemons, as by network.peers.Peers."""

    def dialled(self) -> list[str]: ...

    def dial_now(self) -> None: ...

    async def connect_anew(self) -> None: ...

    def end_old(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a renewal has to do with.

    Attributes:
        connections: with other daemons.
        issuers: where nodes answer that say that they make members.
        tell: says it to every node that is connected.
        failed: is told when the disk takes nothing.
        shown: is told that this node shows another certificate.
    """

    connections: Callable[[], Connections]
    issuers: Callable[[], list[str]]
    tell: Callable[[PutOut], None]
    failed: Callable[[OSError], None]
    shown: Callable[[], None]


class _News(Exception):
    """It is tried at once, and after that with short pauses again."""


class Renewing:
    """Keeps what :class:`Credentials` go by, and what they show."""

    def __init__(
        self, home: Path, credentials: Credentials, address: str, around: Surroundings
    ) -> None:
        """``address``: where this node listens."""
        self._home, self._credentials, self._address = home, credentials, address
        self._around = around
        self._complain = Complaints("renewing")
        self._tasks = Tasks("renewing this node's certificate")
        self._writing = asyncio.Lock()
        self._news = asyncio.Event()
        self._own: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Go on with what was begun before this daemon."""
        if self._credentials.renewal.is_due(self._credentials.own):
            self._begin()

    def met(self) -> None:
        """A node is connected: it may be the one that makes certificates."""
        self._news.set()

    def heard(self, news: Renewal) -> None:
        """Which certificates are old, as another node says or this one."""
        before = self._credentials.renewal
        now = self._credentials.renewal = before.merged(news)
        if now is before:
            return
        log.info("certificates are old", wanted=now.words()[0], refused=now.words()[1])
        self._around.tell(PutOut({}, *now.words()))
        self._tasks.start(self._keep_or_fail())
        self.start()
        if now.refused > before.refused:
            self._tasks.start(self._replace_connections())

    async def keep(self, news: Renewal) -> None:
        """Write it down before it is said.

        Raises:
            OSError: the disk took nothing.
        """
        async with self._writing:
            now = self._credentials.renewal.merged(news)
            await asyncio.to_thread(papers.write_renewal, self._home, now)

    async def close(self) -> None:
        await self._tasks.cancel()

    async def _keep_or_fail(self) -> None:
        try:
            await self.keep(self._credentials.renewal)
        except OSError as error:
            self._around.failed(error)

    async def _replace_connections(self) -> None:
        connections = self._around.connections()
        await connections.connect_anew()
        await asyncio.sleep(REPLACED_SECONDS)
        connections.end_old()

    def _begin(self) -> None:
        self._news.set()
        if self._own is None or self._own.done():
            self._own = self._tasks.keep("renewing this node's certificate", self._until_new)

    async def _until_new(self) -> None:
        again = tenacity.AsyncRetrying(
            wait=tenacity.wait_exponential(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS),
            retry=tenacity.retry_if_result(lambda renewed: not renewed),
            sleep=self._pause,
        )
        while self._credentials.renewal.is_due(self._credentials.own):
            with contextlib.suppress(_News):
                await again(self._renewed)

    async def _pause(self, seconds: float) -> None:
        """Raises _News: there is some since the last attempt, or meanwhile."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
            raise _News

    async def _renewed(self) -> bool:
        """Whether this node shows a new certificate now."""
        self._news.clear()
        if (new := await self._attempt()) is None:
            return False
        try:
            self._credentials.show(new, *papers.shown(self._home))
        except _FAULTS as error:
            self._complain("this node", f"its new certificate can't be shown: {error}")
            return False
        log.info("this node renewed its certificate")
        self._around.shown()
        return True

    async def _attempt(self) -> MemberPapers | None:
        """What this node is to show from now on, which is on its disk; None: not yet."""
        try:
            if (new := await asyncio.to_thread(self._by_itself)) is not None:
                return new
            word = await asyncio.to_thread(
                renewing.own_request, self._home, self._credentials.member.node, self._address
            )
        except _FAULTS as error:
            self._complain("this node", f"its certificate can't be renewed: {error}")
            return None
        likely, all_of_them = self._around.issuers(), self._around.connections().dialled()
        for address in dict.fromkeys((*likely, *all_of_them)):
            try:
                certificate = await renewing.ask(address, self._credentials, word)
                return await asyncio.to_thread(self._taken, certificate)
            except _FAULTS as error:
                self._complain(address, f"no new certificate from there: {error or 'no answer'}")
        return None

    def _by_itself(self) -> MemberPapers | None:
        """What was renewed on the disk, and could not be shown; or what this node has made, if it
        makes members."""
        papers.settle(self._home)
        there = papers.read(self._home)
        if there.certificate != self._credentials.member.certificate:
            return there
        if not papers.makes_members(self._home):
            return None
        from elasticd.shell.storage import founding  # its cryptography takes 13 MiB

        founder = founding.founder_of(self._home)
        if founder is None:
            return None
        own = self._credentials
        return founding.renew_own(
            self._home, founder, own.member, own.revoked, own.renewal.wanted, unix_seconds()
        )

    def _taken(self, certificate: bytes) -> MemberPapers:
        from elasticd.shell.storage import founding

        wanted = self._credentials.renewal.wanted
        return founding.take(self._home, self._credentials.member, certificate, wanted)
