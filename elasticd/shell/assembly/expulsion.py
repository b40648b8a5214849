"""Members that were put out of the cluster: kept in the home, told to everybody, cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

import structlog

from elasticd.core.words.connections import PutOut
from elasticd.core.words.requests import NodeChanged, PutOutNode
from elasticd.errors import OperationError
from elasticd.shell.clock import unix_seconds
from elasticd.shell.control.server import Handlers, Stream, on
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.network.tasks import Tasks
from elasticd.shell.storage import issuing, papers
from elasticd.trust import revoked
from elasticd.trust.authority import last_serial
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
    ) -> None:
        """``cut_off`` ends the connections of whoever is put out by now; ``failed`` is told when
        the disk takes nothing, and ``happened`` whom a person has put out here."""
        self._home, self._credentials = home, credentials
        self._cut_off, self._tell = cut_off, tell
        self._failed, self._happened = failed, happened
        self._tasks = Tasks()
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

    def handlers(self, known: Callable[[], Collection[NodeId]]) -> Handlers:
        """What people ask; ``known``: the ids of all nodes that there are, or were."""

        async def asked(request: PutOutNode, stream: Stream) -> NodeChanged:
            if request.node == self._credentials.member.node:
                raise OperationError(f"{request.node} is this node: say it at another one")
            joined = await asyncio.to_thread(issuing.read, self._home)
            if request.node not in known() and request.node not in joined:
                raise OperationError(f"no node {request.node}")
            await self.put_out(request.node)
            self._happened(request.node)
            return NodeChanged(request.node, "put out")

        return on(PutOutNode, asked)

    async def put_out(self, node: NodeId) -> None:
        """Take no certificate of ``node`` any more that was made by now.

        Raises:
            OSError: the disk took nothing; it is cut off until the daemon ends.
        """
        name = self._credentials.member.name_of(node)
        self._take(Revoked({name: last_serial(unix_seconds())}))
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
            now = self._credentials.revoked
            await asyncio.to_thread(papers.write_revoked, self._home, now)
