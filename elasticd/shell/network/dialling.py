"""Connections that this daemon opens to others, and sends on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog
import tenacity

from elasticd.core.words.connections import CONNECTION, Pong
from elasticd.errors import ProtocolError
from elasticd.ipc.frames import Decoder, encode
from elasticd.settings.config import split_address
from elasticd.shell.network import transfer
from elasticd.shell.network.credentials import reason_of
from elasticd.shell.network.gate import Gate
from elasticd.shell.network.hello import (
    ADDRESSES_OF_ONE,
    HELLO_BYTES,
    HELLO_SECONDS,
    Hello,
    Refused,
)
from elasticd.shell.network.table import PeerTable
from elasticd.shell.network.transfer import READ_BYTES
from elasticd.shell.network.wall import CURE
from elasticd.shell.network.wires import PeerRun, Wire
from elasticd.shell.tasks import Tasks, cancel
from elasticd.trust.names import Issued

MAX_ADDRESSES = 1024
LAST_WORDS_SECONDS = 0.05
REDIAL_SECONDS = 0.05
SLOWEST_REDIAL_SECONDS = 1.0
SLOWEST_HINT_SECONDS = 10.0
"""Where nobody but a stranger says that a daemon is, until one has answered there."""
REFUSED_SECONDS = 5.0
"""Pause before an address is tried again that answered as another cluster or version."""
BETWEEN_SECONDS = 0.01
"""Between two connections that are made anew."""
FORGET_SECONDS = 600.0
"""An address that was only learned is dropped after so long without an answer, unless a connected
node says that it is there; others say hello again."""
_NOT_YET = (OSError, ProtocolError)
"""Ends of an attempt after which there is another one."""

log = structlog.get_logger(__name__)


class OwnAddress(Exception):
    """The daemon that answered is this one."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A connection on which another daemon has said hello."""

    hello: Hello
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


@dataclass(slots=True, eq=False)
class Dial:
    """An address that is dialled for as long as the daemon runs; a learned one may be forgotten."""

    address: str
    learned: bool
    hinted: bool = False
    """No member says that a daemon is there, and none has answered yet."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    anew: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when another connection is to take the place of the one that there is."""
    task: asyncio.Task[None] | None = None

    async def pause(self, seconds: float) -> None:
        """Sleep, unless there was news of the peer since the last pause, or comes meanwhile."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wake.wait()
        self.wake.clear()

    def attempts(self, advertised: Callable[[str], bool]) -> tenacity.AsyncRetrying:
        """Each attempt to be answered by a daemon that may be a peer, with growing pauses.

        Args:
            advertised: whether a connected node says that it is at an address.
        """

        def slower(slowest: float) -> tenacity.wait.wait_base:
            growing = tenacity.wait_exponential(multiplier=REDIAL_SECONDS, max=slowest)
            return growing + tenacity.wait_random(0, REDIAL_SECONDS)

        known, hinted = slower(SLOWEST_REDIAL_SECONDS), slower(SLOWEST_HINT_SECONDS)

        def wait(state: tenacity.RetryCallState) -> float:
            outcome = state.outcome
            refused = outcome is not None and isinstance(outcome.exception(), Refused)
            if self.hinted:
                return SLOWEST_HINT_SECONDS if refused else hinted(state)
            return REFUSED_SECONDS if refused else known(state)

        def is_forgotten(state: tenacity.RetryCallState) -> bool:
            late = tenacity.stop_after_delay(FORGET_SECONDS)(state)
            return late and self.learned and not advertised(self.address)

        return tenacity.AsyncRetrying(
            wait=wait,
            stop=is_forgotten,
            retry=tenacity.retry_if_exception_type(_NOT_YET),
            sleep=self.pause,
        )


@dataclass(slots=True)
class Dialler:
    """Keeps a connection to every address that it knows."""

    gate: Gate
    table: PeerTable
    tasks: Tasks
    dials: dict[str, Dial] = field(default_factory=dict)
    replacing: Tasks = field(
        default_factory=lambda: Tasks("replacing a connection with another node")
    )
    """One for each connection, which ends with it; they are no connections."""

    def dial(self, address: str, *, learned: bool) -> None:
        """Dial an address from now on; if that is being done already, do it now."""
        if self.gate.is_own(address):
            return
        if (known := self.dials.get(address)) is not None:
            known.learned = known.learned and learned
            known.hinted = False
            known.wake.set()
        else:
            self._begin(Dial(address, learned))

    def hint(self, address: str) -> None:
        """Dial where a stranger says that a daemon is, ever less often. Saying it again hastens
        nothing."""
        if not self.gate.is_own(address) and address not in self.dials:
            self._begin(Dial(address, learned=True, hinted=True))

    def _begin(self, dial: Dial) -> None:
        try:
            split_address(dial.address)
        except ValueError as error:  # an earlier version has taken it, and noted it in the home
            self.gate.complain(dial.address, f"it is not dialled: {error}")
            return
        if len(self.dials) < MAX_ADDRESSES:
            self.dials[dial.address] = dial
            work = partial(self._keep_dialled, dial)
            dial.task = self.tasks.keep(f"dialling {dial.address}", work)

    def may_forget(self, address: str) -> None:
        """Nobody but daemons says any more that another one is there."""
        if (known := self.dials.get(address)) is not None:
            known.learned = True

    def learn_from(self, hello: Hello) -> None:
        """Raises ProtocolError: as :meth:`learn`."""
        self.learn(hello.addresses)

    def learn(self, addresses: Sequence[str], most: int = ADDRESSES_OF_ONE + 1) -> None:
        """Dial where a daemon says that it is to be found, or others are.

        Args:
            most: so many it may say; a hello's own address may be beside its list.

        Raises:
            ProtocolError: it gives what is no address, or too many.
        """
        if len(addresses) > most:
            raise ProtocolError("it gives no list of addresses")
        for address in addresses:
            try:
                split_address(address)
            except ValueError as error:
                raise ProtocolError(f"it gives no address: {error}") from None
            self.dial(address, learned=True)

    def wake(self) -> None:
        """Dial all now that are waited with."""
        for dial in self.dials.values():
            dial.wake.set()

    async def connect_anew(self) -> None:
        """Replace what is connected, one after the other."""
        for dial in list(self.dials.values()):
            dial.anew.set()
            # Each takes a handshake at both ends, which have other work.
            await asyncio.sleep(BETWEEN_SECONDS)

    async def close(self) -> None:
        """End every connection, after what was sent has had a second to leave."""
        await cancel([dial.task for dial in self.dials.values() if dial.task is not None])

    async def _keep_dialled(self, dial: Dial) -> None:
        """Connect, and again whenever the connection ends, until cancelled. What nobody has thought
        of is raised, and loses no address: this is begun again."""
        try:
            while True:
                answered: Answered | None = await dial.attempts(self.table.advertises)(
                    self._greet, dial
                )
                while answered is not None:
                    answered = await self._held(dial, answered)
                await dial.pause(REDIAL_SECONDS)
        except (OwnAddress, tenacity.RetryError) as error:
            log.info("address is not dialled any more", address=dial.address, reason=str(error))
            del self.dials[dial.address]
            self.gate.wall.passed(dial.address)

    async def _held(self, dial: Dial, answered: Answered) -> Answered | None:
        """Have a connection until it ends, or another one has taken its place, which is returned;
        close it."""
        replacing = _Replacing()
        try:
            await self._hold(dial, answered, replacing)
        except BaseException:
            if replacing.by is not None:
                transfer.abort(replacing.by.writer)
            await transfer.close(answered.writer)
            raise
        if replacing.by is None or replacing.by.writer.is_closing():
            await transfer.close(answered.writer)
            return None
        self.tasks.start(transfer.close(answered.writer))
        return replacing.by

    async def _greet(self, dial: Dial) -> Answered:
        address = dial.address
        dial.anew.clear()  # what is shown from now on is as new as can be
        shown = self.gate.credentials.own
        began = asyncio.get_running_loop().time()
        try:
            reader, writer = await transfer.connect(address, self.gate.credentials)
            self.gate.wall.passed(address)
            try:
                answered = Answered(await self._greeted(reader, writer, shown), reader, writer)
                dial.hinted = False
                return answered
            except BaseException:
                transfer.abort(writer)
                raise
        except ssl.SSLError as error:
            refusal = Refused(reason_of(error))
            self.gate.refuse(address, refusal)
            raise refusal from None
        except ProtocolError as error:
            self.gate.refuse(address, error)
            raise
        except OSError as error:
            if error.errno != errno.EHOSTUNREACH:
                self.gate.wall.passed(address)
                raise
            seconds = asyncio.get_running_loop().time() - began
            is_here = self.gate.wall.met(address, seconds)
            self.gate.complain(address, f"no route to it: {CURE}" if is_here else "no route to it")
            raise

    async def _greeted(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, shown: Issued
    ) -> Hello:
        """``shown``: our own certificate; there may be a newer one by now."""
        member = self.gate.credentials.other_end(writer.get_extra_info("ssl_object"))
        writer.write(encode(self.gate.me.frame()))
        async with asyncio.timeout(HELLO_SECONDS):
            first = await transfer.read_frame(reader, HELLO_BYTES)
        if (wanted := self.gate.told_to_renew(first, member)) is not None:
            if not wanted.is_due(shown):
                raise ProtocolError("it wants a certificate renewed that is newer than it says")
            self.table.call.must_renew(wanted)
            if not wanted.is_due(self.gate.credentials.own):
                raise ConnectionError("the certificate was renewed meanwhile")
            raise Refused("it takes no certificate of before all were renewed, as this node's is")
        self.gate.require_no_twin(first)
        hello = self.gate.check(first, member)
        self.gate.admit(hello, self.table.boot_of(hello.node))
        if hello.node != self.gate.me.node:
            self.learn(hello.addresses)
        return hello

    async def _hold(self, dial: Dial, answered: Answered, replacing: _Replacing) -> None:
        """Have a connection that a daemon has answered, until it ends or another one has taken its
        place."""
        if answered.hello.node == self.gate.me.node:
            self.gate.complain_of_namesake(answered.hello, dial.address)
            raise OwnAddress("it is this node's own")
        peer, wire = self._use(dial, answered)
        task = self.replacing.start(self._replace(dial, answered, replacing))
        reason = "it closed its connection"
        try:
            await _read_pongs(wire, answered.reader)
            if replacing.by is None:
                await _last_words(peer)
        except OSError as error:
            reason = f"its connection failed: {error.strerror or error}"
        except (ProtocolError, *transfer.WRONG_SHAPE):
            reason = "it sent something on a connection that is ours to send on"
            self.gate.count_bad(peer.node, reason)
            self.table.drop(peer, reason)
        finally:
            task.cancel()
            if peer.wires.get(wire.address) is wire:
                del peer.wires[wire.address]
            self.table.fewer(peer, reason)

    def _use(self, dial: Dial, answered: Answered) -> tuple[PeerRun, Wire]:
        """Send over a connection from now on, if its address is the best."""
        peer = self.table.meet(answered.hello)
        wire = peer.wires.get(dial.address)
        if wire is None or wire.writer is not answered.writer:
            wire = peer.wires[dial.address] = Wire(dial.address, answered.writer)
            self.table.choose(peer)
            self.table.more(peer)
        return peer, wire

    async def _replace(self, dial: Dial, answered: Answered, replacing: _Replacing) -> None:
        """When that is wanted, have another connection take the place of one, and end that: both
        are used for a moment, so that nothing that is sent is cut."""
        await dial.anew.wait()

        def told(state: tenacity.RetryCallState) -> None:
            assert state.outcome is not None
            why = str(state.outcome.exception())
            log.info("address is not dialled anew", address=dial.address, reason=why)

        again = tenacity.AsyncRetrying(
            wait=tenacity.wait_fixed(REFUSED_SECONDS),
            retry=tenacity.retry_if_exception_type(_NOT_YET),
            before_sleep=told,
        )
        other: Answered = await again(self._greet, dial)
        replacing.by = other
        if other.hello.node != self.gate.me.node:
            self._use(dial, other)
        answered.writer.close()


@dataclass(slots=True)
class _Replacing:
    """Which connection, used already, has taken the place of another; None: none yet."""

    by: Answered | None = None


async def _read_pongs(wire: Wire, reader: asyncio.StreamReader) -> None:
    """The only answers that come on a connection that we opened, until it ends."""
    decoder = Decoder()
    loop = asyncio.get_running_loop()
    while data := await reader.read(READ_BYTES):
        for frame in decoder.feed(data):
            word = CONNECTION.decode(frame)
            if not isinstance(word, Pong):
                raise ProtocolError("no pong")
            wire.pong(loop.time(), word.n)


async def _last_words(peer: PeerRun) -> None:
    """A peer's may be on another connection, which ends at the same time."""
    if peer.announced:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await peer.gone.wait()
