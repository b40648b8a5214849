"""The connections to one peer, one for each of its addresses, and which of them carries frames.

Whoever opened a connection pings on it; the answer measures the address. A pure function of answers
and of now: minder.py does the sending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from elasticd.core.words.records import Path
from elasticd.core.words.versions import OLDEST
from elasticd.types import NodeId

PING_SECONDS = 0.15
"""Between pings to a peer with several addresses; to others it is SELDOM_PING_SECONDS."""
SELDOM_PING_SECONDS = 2.0
SICK_SECONDS = 0.45
"""An address that leaves a ping open for so long, while another one answers, carries nothing. Where
none does the peer is busy, or gone: that is for its heartbeats to say."""
PROOF_SECONDS = 1.0
"""It is used again after it has answered steadily for so long, doubling with each loss."""
LONGEST_PROOF_SECONDS = 30.0
SETTLE_SECONDS = 2.0


@dataclass(slots=True, eq=False)
class Wire:
    """A connection that we opened to ``address`` ("host:port")."""

    address: str
    writer: asyncio.StreamWriter
    round_trip_seconds: float = 0.0
    sick: bool = False
    losses: int = 0
    _serial: int = 0
    _open: dict[int, float] = field(default_factory=dict)
    """Pings that are not answered yet, and when they went."""
    _pinged_at: float = -inf
    _answered: float = -inf
    """When the newest ping went that was answered."""
    _outlived: tuple[float, float] = (inf, inf)
    """When our oldest open ping went, and since when another address has answered a later one."""
    _steady_since: float = inf

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]

    def due(self, now: float, every_seconds: float) -> bool:
        return now - self._pinged_at >= every_seconds

    def ping(self, now: float) -> int:
        """A ping goes now; returns its number."""
        self._serial += 1
        self._pinged_at = now
        if len(self._open) < 64:
            self._open[self._serial] = now
        return self._serial

    def pong(self, now: float, number: int) -> None:
        """An answer; those to earlier pings are not waited for any more: the order is kept."""
        sent = self._open.get(number)
        if sent is None:
            return
        for each in [each for each in self._open if each <= number]:
            del self._open[each]
        self._answered = max(self._answered, sent)
        last = self.round_trip_seconds
        self.round_trip_seconds = last + (now - sent - last) / 8 if last else now - sent
        if self._steady_since == inf:
            self._steady_since = now

    def judge(self, now: float, others: Iterable[Wire]) -> None:
        """Fall sick, or be well again. ``others``: to the same peer."""
        oldest = min(self._open.values(), default=inf)
        outlived = self._is_outlived(now, oldest, others)
        if now - oldest >= SICK_SECONDS:
            self._steady_since = inf
            if outlived and not self.sick:
                self.sick = True
                self.losses += 1
        elif self.sick:
            proof = min(PROOF_SECONDS * 2 ** (self.losses - 1), LONGEST_PROOF_SECONDS)
            self.sick = now - self._steady_since < proof

    def _is_outlived(self, now: float, oldest: float, others: Iterable[Wire]) -> bool:
        """Whether another address answers, and not just since now: a peer that was busy answers on
        all of them, one after the other."""
        if not any(other is not self and other._answered >= oldest for other in others):
            self._outlived = (inf, inf)
        elif self._outlived[0] != oldest:
            self._outlived = (oldest, now)
        return now - self._outlived[1] >= PING_SECONDS / 2

    def forgive(self) -> None:
        """We did not run ourselves: what is open says nothing."""
        self._open.clear()


@dataclass(slots=True, eq=False)
class PeerRun:
    """One run of another daemon, with the connections to it and those from it.

    Attributes:
        address: where it is reached now.
        addresses: what it advertises, best first.
        protocol: the version that both ends speak.
        wires: connections that we opened, by address; ``active`` carries our frames.
        incoming: connections that it opened: it knows several addresses of ours.
        known: set when there are connections both ways, or when it has gone.
    """

    node: NodeId
    boot: str
    address: str
    addresses: tuple[str, ...] = ()
    protocol: int = OLDEST
    wires: dict[str, Wire] = field(default_factory=dict)
    active: Wire | None = None
    speeds: dict[str, float] = field(default_factory=dict)
    """Bytes per second, by address, as measured once."""
    incoming: list[asyncio.StreamWriter] = field(default_factory=list)
    announced: bool = False
    fresh: dict[str, float] = field(default_factory=dict)
    """Addresses of which it has just told, and until when that they don't answer says nothing."""
    measuring: asyncio.Task[None] | None = None
    told: tuple[tuple[str, bool, float], ...] = ()
    known: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def moved(self, addresses: tuple[str, ...], now: float) -> None:
        """It advertises these now."""
        self.fresh |= {a: now + SETTLE_SECONDS for a in addresses if a not in self.addresses}
        self.addresses = addresses
        self.speeds = {each: self.speeds[each] for each in addresses if each in self.speeds}

    def announce(self, now: float) -> None:
        """It is connected."""
        self.announced = True
        self.fresh = dict.fromkeys(self.addresses, now + SETTLE_SECONDS)
        self.known.set()

    def settle(self, now: float) -> None:
        """Time has passed: what has not answered by now is dead."""
        self.fresh = {address: until for address, until in self.fresh.items() if now < until}

    def choose(self) -> bool:
        """Take the first address by the peer's wish that is well. True if that is another one."""
        before = self.active
        well = [wire for wire in self._by_wish() if not wire.sick]
        if well:
            self.active = well[0]
        elif self.active is None or self.active.address not in self.wires:
            self.active = next(iter(self._by_wish()), None)
        if self.active is not None:
            self.address = self.active.address
        return self.active is not before

    def _by_wish(self) -> Sequence[Wire]:
        def place(wire: Wire) -> int:
            known = wire.address in self.addresses
            return self.addresses.index(wire.address) if known else len(self.addresses)

        return sorted(self.wires.values(), key=place)

    def writers(self) -> list[asyncio.StreamWriter]:
        return [*(wire.writer for wire in self.wires.values()), *self.incoming]

    def paths(self) -> tuple[Path, ...]:
        """How it is reached at each of its addresses."""
        found = []
        for address in self.addresses or tuple(self.wires):
            wire = self.wires.get(address)
            host = address.rpartition(":")[0]
            if wire is None:
                # At first it may only not have answered yet: nothing is known of it then.
                if address not in self.fresh:
                    found.append(Path(self.node, host, False))
            else:
                trip, speed = wire.round_trip_seconds, self.speeds.get(address, 0.0)
                found.append(Path(self.node, host, not wire.sick, trip, speed))
        return tuple(found)

    def news(self) -> bool:
        """Whether :meth:`paths` say something new that matters; what only measures a moment does
        not."""
        now = tuple((path.host, path.healthy, path.bytes_per_second) for path in self.paths())
        changed, self.told = now != self.told, now
        return changed
