"""Members that were put out of the cluster: kept in the home, told to everybody, cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

import structlog

from elasticd.core.words.connections import PutOut
from elasticd.core.words.requests.nodes import NodeChanged, PutOutNode
from elasticd.errors import OperationError
from elasticd.shell.clock import unix_seconds
from elasticd.shell.control.server import Handlers, Stream, on
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.storage import issuing, papers
from elasticd.shell.tasks import Tasks
from elasticd.trust import revoked
from elasticd.trust.member import MemberPapers
from elasticd.trust.names import last_serial
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId

log = structlog.get_logger(__name__)


class Expulsion:
    """Keeps what :class:`Credentials` go by.

    Whoever is put out is cut off here before that is on the disk: it must not be let in for a disk
    that is slow. What another node says goes to the disk behind it; what a person says is answered
    when it is there.
    """

    def __init__(
        self,
        home: Path,
        credentials: Credentials,
        cut_off: Callable[[], None],
        tell: Callable[[PutOut], None],
        failed: Callable[[OSError], None],
        happened: Callable[[NodeId], None],
        known: Callable[[], Collection[NodeId]],
        serial_of: Callable[[NodeId], int],
    ) -> None:
        """``cut_off`` ends the connections of whoever is put out by now; ``failed`` is told when
        the disk takes nothing, and ``happened`` whom a person has put out here. ``known``: the
        ids of all nodes that there are, or were; ``serial_of``: of the certificate that a node
        has shown, 0 if it hasn't."""
        self._home, self._credentials = home, credentials
        self._cut_off, self._tell = cut_off, tell
        self._failed, self._happened = failed, happened
        self._known, self._serial_of = known, serial_of
        self._tasks = Tasks("noting who was put out of the cluster")
        self._writing = asyncio.Lock()

    @property
    def known(self) -> PutOut | None:
        """What others are to hear; None: nobody was put out."""
        serials = self._credentials.revoked.words()
        return PutOut(serials) if serials else None

    def heard(self, word: PutOut) -> None:
        """Raises ProtocolError: it makes no sense."""
        if self._take(revoked.read(word.serials)):
            self._tasks.start(self._keep_or_fail())

    def handlers(self) -> Handlers:
        return on(PutOutNode, self.asked)

    async def asked(self, request: PutOutNode, stream: Stream) -> NodeChanged:
        """What a person wants.

        Raises:
            OperationError: it is this node, or none that there is or was.
        """
        node = request.node
        if node == self._credentials.member.node:
            raise OperationError(f"{node} is this node: say it at another one")
        joined = await asyncio.to_thread(issuing.read, self._home)
        if node not in self._known() and node not in joined:
            raise OperationError(f"no node {node}: name it in full")
        given = joined.get(node)
        await self.put_out(node, 0 if given is None else given.serial)
        self._happened(node)
        return NodeChanged(node, "put out")

    async def put_out(self, node: NodeId, least: int = 0) -> None:
        """Take no certificate of ``node`` any more that was made by now, nor one up to the serial
        ``least``: the clock of who made it may be ahead.

        Raises:
            OSError: the disk took nothing; it is cut off until the daemon ends.
        """
        name = self._credentials.member.name_of(node)
        serial = max(last_serial(unix_seconds()), least, self._serial_of(node))
        self._take(Revoked({name: serial}))
        await self._keep()

    async def written(self) -> None:
        """Returns when everything that is known by now is on the disk, or the disk has failed."""
        await self._tasks.ended()

    async def close(self) -> None:
        await self._tasks.cancel()

    def _take(self, news: Revoked) -> bool:
        before = self._credentials.revoked
        self._credentials.revoked = before.merged(news)
        if self._credentials.revoked is before:
            return False
        log.info("members were put out", count=len(self._credentials.revoked.serials))
        self._cut_off()
        self._tell(PutOut(self._credentials.revoked.words()))
        return True

    async def _keep_or_fail(self) -> None:
        try:
            await self._keep()
        except OSError as error:
            self._failed(error)

    async def _keep(self) -> None:
        async with self._writing:
            now, member = self._credentials.revoked, self._credentials.member
            all_of_them = await asyncio.to_thread(_keep, self._home, member, now)
            self._take(all_of_them)


def _keep(home: Path, member: MemberPapers, known: Revoked) -> Revoked:
    """Write it down, with the certificates that renew what is revoked, which are revoked, too."""
    if papers.makes_members(home):
        # Who was put out may know a token that is open. First of all: after a crash in between
        # nobody would think of it.
        issuing.end_tokens(home)
        try:
            known = known.merged(issuing.outlived(home, member, known))
        except issuing.FileDamaged as error:
            log.error("what renews a revoked certificate may be taken", reason=str(error))
    papers.write_revoked(home, known)
    return known
