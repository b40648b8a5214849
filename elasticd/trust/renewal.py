"""That all members get new keys and certificates. Pure.

Serials grow with the time at which a certificate was made, so two of them say it all: up to the one
certificates are to be renewed, and up to the other they are good for nothing else any more. Both
only grow, so what two nodes know merges to the larger of each, whoever hears it first.

First all members that are there renew theirs, while old and new ones are taken: whatever fails
meanwhile, and for however long, costs nobody a connection. Then the old ones are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from elasticd.errors import ProtocolError
from elasticd.trust.names import Issued, last_serial
from elasticd.types import NodeId

BELIEVED_SECONDS = 365 * 86400.0
"""So far ahead may be what a node says; more than clocks differ."""
_SERIAL_BITS = 160


@dataclass(frozen=True, slots=True)
class Renewal:
    """Which certificates are old.

    Attributes:
        wanted: up to this serial they are to be renewed.
        refused: up to this one they are good for that only; never above ``wanted``.
    """

    wanted: int = 0
    refused: int = 0

    def is_due(self, own: Issued) -> bool:
        """Whether the owner of a certificate has to renew it."""
        return own.serial <= self.wanted

    def refuses(self, shown: Issued) -> bool:
        return shown.serial <= self.refused

    @property
    def is_under_way(self) -> bool:
        """Whether old ones are still taken."""
        return self.wanted > self.refused

    def is_believable(self, newest: int, now: float) -> bool:
        """Whether a node may say so. What lies far ahead would have certificates refused that are
        yet to be made, for good; a node that lies may say it, or one whose clock is wrong.

        Args:
            newest: the largest serial that was shown. So far the authority is.
        """
        return self.wanted <= max(newest, last_serial(now + BELIEVED_SECONDS))

    def merged(self, other: Renewal) -> Renewal:
        """What both say; the same object if the other says nothing new."""
        refused = max(self.refused, other.refused)
        both = Renewal(max(self.wanted, other.wanted, refused), refused)
        return self if both == self else both

    def words(self) -> tuple[str, str]:
        """As it is sent and stored: serials are longer than numbers on the wire may be."""
        return word_of(self.wanted), word_of(self.refused)


def read(wanted: str, refused: str) -> Renewal:
    """What :meth:`Renewal.words` said.

    Raises:
        ProtocolError: it is none of that.
    """
    return Renewal().merged(Renewal(serial_in(wanted), serial_in(refused)))


def told(word: str, teller: Issued) -> Renewal:
    """What a node says that refuses our certificate for being old.

    Raises:
        ProtocolError: it makes no sense. Its own certificate would be old, too: so a former
            certificate can't be used to have members renew theirs for ever.
    """
    wanted = Renewal(serial_in(word))
    if not wanted.wanted or wanted.is_due(teller):
        raise ProtocolError("it wants a newer certificate than its own is")
    return wanted


def word_of(serial: int) -> str:
    """As it is sent and stored; 0 is none."""
    return format(serial, "x") if serial else ""


def serial_in(word: str) -> int:
    """Inverse of :func:`word_of`.

    Raises:
        ProtocolError: that is no serial.
    """
    try:
        serial = int(word, 16) if word else 0
    except ValueError:
        raise ProtocolError("it renews what is no certificate") from None
    if not 0 <= serial < 1 << _SERIAL_BITS:
        raise ProtocolError("it renews what is no certificate")
    return serial


@dataclass(frozen=True, slots=True)
class RenewalProgress:
    """How far the renewal is, by node.

    Attributes:
        renewed: has its new certificate.
        waiting: is there, and hasn't.
        away: is not there. It renews its own when it is back.
    """

    renewed: tuple[NodeId, ...]
    waiting: tuple[NodeId, ...]
    away: tuple[NodeId, ...]

    def may_end(self, settled: bool) -> bool:
        """Whether old certificates may be refused.

        Args:
            settled: whoever is not here by now is away; a daemon that was just started knows that
                of nobody yet.
        """
        return not self.waiting and (settled or not self.away)


def standing(
    wanted: int,
    members: Collection[NodeId],
    present: Collection[NodeId],
    shown: Mapping[NodeId, int],
    given: Mapping[NodeId, int],
) -> RenewalProgress:
    """How far it is.

    Args:
        shown: the serial of each node's certificate, as it has said last itself.
        given: of the newest one that was made for it. One that is there may not have it yet.
    """
    renewed: list[NodeId] = []
    waiting: list[NodeId] = []
    away: list[NodeId] = []
    for node in sorted(members):
        if shown.get(node, 0) > wanted:
            renewed.append(node)
        elif node in present:
            waiting.append(node)
        else:
            (renewed if given.get(node, 0) > wanted else away).append(node)
    return RenewalProgress(tuple(renewed), tuple(waiting), tuple(away))
