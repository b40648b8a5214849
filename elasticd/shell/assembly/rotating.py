"""``elasticctl cluster rotate``, at the node that makes members: all renew their certificates, then
the old ones are refused (trust/renewal.py)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from elasticd.core.words.connections import NodeInfo
from elasticd.core.words.requests.nodes import RotateCertificates, RotationTold
from elasticd.errors import OperationError, ProtocolError
from elasticd.shell.assembly.renewing import Renewing
from elasticd.shell.clock import unix_seconds
from elasticd.shell.control.server import Handlers, Stream, on
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.storage import issuing, papers
from elasticd.shell.tasks import Tasks
from elasticd.trust import renewal
from elasticd.trust.issuing import Register
from elasticd.trust.names import Issued, last_serial
from elasticd.trust.renewal import Renewal, RenewalProgress
from elasticd.types import NodeId

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.5
"""How often it is looked who has renewed, while a rotation is under way; news come sooner."""
TELL_SECONDS = 2.0
"""A client hears at least as often how far it is."""
SETTLE_SECONDS = 10.0
"""So long after a daemon's start those that are there have connected."""


@dataclass(frozen=True, slots=True)
class KnownNodes:
    """What this node knows of the others.

    Attributes:
        listed: the nodes that there are, dead ones too.
        ever: also those that are gone for good.
        present: those that are not known to be dead, this one included.
        infos: what each has said of itself.
        serial_of: of the certificate that a connected node has shown; 0 for others.
    """

    listed: Callable[[], Collection[NodeId]]
    ever: Callable[[], Collection[NodeId]]
    present: Callable[[], Collection[NodeId]]
    infos: Callable[[], Mapping[NodeId, NodeInfo]]
    serial_of: Callable[[NodeId], int]


class Rotating:
    """Does nothing where nobody becomes a member."""

    def __init__(
        self,
        home: Path,
        credentials: Credentials,
        own: Renewing,
        known: KnownNodes,
        failed: Callable[[OSError], None],
        happened: Callable[[str, str], None],
        now: Callable[[], float] = unix_seconds,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        """``failed`` is told when the disk takes nothing, ``happened`` what people are to know."""
        self._settle_seconds = settle_seconds
        self._home, self._credentials, self._own, self._known = home, credentials, own, known
        self._failed, self._happened, self._now = failed, happened, now
        self._tasks = Tasks("having all nodes renew their certificates")
        self._turn = asyncio.Lock()
        self._news = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        self._settled_at = float("inf")

    def start(self) -> None:
        self._settled_at = asyncio.get_running_loop().time() + self._settle_seconds
        self.go_on()

    def go_on(self) -> None:
        """There is news of a node, or of which certificates are old."""
        self._news.set()
        under_way = self._credentials.renewal.is_under_way and papers.makes_members(self._home)
        if under_way and (self._ending is None or self._ending.done()):
            self._ending = self._tasks.start(self._until_refused())

    async def close(self) -> None:
        await self._tasks.cancel()

    def handlers(self) -> Handlers:
        return on(RotateCertificates, self.asked)

    async def asked(self, request: RotateCertificates, stream: Stream) -> None:
        """What a person wants. It goes on when the client has gone.

        Raises:
            OperationError: this node can't do it, or another one can't renew.
            OSError: the disk took nothing; nothing has begun.
        """
        if not papers.makes_members(self._home):
            raise OperationError(self._not_here())
        await asyncio.shield(asyncio.ensure_future(self._begin()))
        loop, last, told_at = asyncio.get_running_loop(), None, 0.0
        while True:
            self._news.clear()
            refused = not self._credentials.renewal.is_under_way
            told = await self._told(refused)
            if told != last or loop.time() - told_at >= TELL_SECONDS:
                await stream.send(told)
                last, told_at = told, loop.time()
            if refused:
                return
            await self._some_news()

    def _not_here(self) -> str:
        me, infos = self._credentials.member.node, self._known.infos()
        makers = [node for node, info in sorted(infos.items()) if info.makes_members]
        where = f"on {makers[0]}" if makers else "on the node where 'cluster init' was run"
        return f"{me} makes no certificates: say it {where}"

    async def _begin(self) -> None:
        """Have all renew what they have now, unless that is under way."""
        async with self._turn:
            if not self._credentials.renewal.is_under_way:
                self._refuse_earlier_versions()
                register = await asyncio.to_thread(issuing.read, self._home)
                wanted = Renewal(self._newest(register))
                await self._own.keep(wanted)
                self._own.heard(wanted)
        self.go_on()

    def _refuse_earlier_versions(self) -> None:
        infos = self._known.infos()
        for node in self._known.present():
            if (info := infos.get(node)) is not None and not info.serial:
                raise OperationError(
                    f"{node} runs a version of elasticd that can't renew its certificate: upgrade"
                    " it first"
                )

    def _newest(self, register: Register) -> int:
        """The last serial that there may be: clocks that were ahead count."""
        given = [each.serial for each in register.values()]
        shown = [self._known.serial_of(node) for node in self._known.present()]
        own = self._credentials.own.serial
        return max(last_serial(self._now()), own, *given, *shown, self._credentials.renewal.wanted)

    async def _until_refused(self) -> None:
        """Have old certificates refused once all who are there have new ones."""
        loop = asyncio.get_running_loop()
        try:
            while (known := self._credentials.renewal).is_under_way:
                self._news.clear()
                standing = await self._standing()
                if standing.may_end(loop.time() >= self._settled_at):
                    ended = Renewal(known.wanted, known.wanted)
                    await self._own.keep(ended)
                    self._own.heard(ended)
                    self._happened("certificates_rotated", worded(standing))
                    return
                await self._some_news()
        except OSError as error:
            self._failed(error)
        except OperationError as error:
            log.error("old certificates are taken still", reason=str(error))

    async def _some_news(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self._news.wait()

    async def _told(self, refused: bool) -> RotationTold:
        standing = await self._standing()
        when = Issued("", self._credentials.renewal.wanted).made_unix
        return RotationTold(when, standing.renewed, standing.waiting, standing.away, refused)

    async def _standing(self) -> RenewalProgress:
        register = await asyncio.to_thread(issuing.read, self._home)
        given = {node: each.serial for node, each in register.items()}
        shown = {node: _serial(info) for node, info in self._known.infos().items()}
        me, own = self._credentials.member.node, self._credentials.own.serial
        shown[me] = own
        listed = set(self._known.listed())
        gone = set(self._known.ever()) - listed
        members = {
            node
            for node in (listed | given.keys() | {me}) - gone
            if not self._is_out(node, max(given.get(node, 0), shown.get(node, 0)))
        }
        wanted, present = self._credentials.renewal.wanted, self._known.present()
        return renewal.standing(wanted, members, present, shown, given)

    def _is_out(self, node: NodeId, serial: int) -> bool:
        name = self._credentials.member.name_of(node)
        return self._credentials.revoked.holds(Issued(name, serial))


def _serial(info: NodeInfo) -> int:
    try:
        return renewal.serial_in(info.serial)
    except ProtocolError:
        return 0


def worded(standing: RenewalProgress) -> str:
    """For people."""
    count = len(standing.renewed) + len(standing.waiting) + len(standing.away)
    text = f"{len(standing.renewed)} of {count} nodes have new certificates"
    for node in standing.away:
        text += f"; {node} is away, it renews its own when it is back"
    return text
