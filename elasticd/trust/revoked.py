"""Members that were put out: by the name in their certificate, every one up to a serial. Pure.

The lists of two nodes merge to the larger serial of each name, so a revocation spreads whoever
hears it first, and a node that is let in again later has a certificate with a larger one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.errors import ProtocolError
from elasticd.trust.names import Issued

MOST = 1024
"""Names that are kept; of more those go whose revocation is the oldest."""
_NAME_CHARS = 32
_SERIAL_BITS = 160


@dataclass(frozen=True, slots=True)
class Revoked:
    """Whose certificates are not taken any more."""

    serials: Mapping[str, int] = field(default_factory=dict)

    def holds(self, member: Issued) -> bool:
        return member.serial <= self.serials.get(member.name, -1)

    def merged(self, other: Revoked) -> Revoked:
        """What both say; the same object if the other says nothing new."""
        news = {
            name: serial
            for name, serial in other.serials.items()
            if serial > self.serials.get(name, -1)
        }
        if not news:
            return self
        every = sorted({**self.serials, **news}.items(), key=lambda item: -item[1])
        return Revoked(dict(sorted(every[:MOST])))

    def words(self) -> dict[str, str]:
        """As it is sent and stored: serials are longer than numbers on the wire may be."""
        return {name: format(serial, "x") for name, serial in self.serials.items()}


def read(words: Mapping[str, str]) -> Revoked:
    """What :meth:`Revoked.words` said.

    Raises:
        ProtocolError: it is none of that.
    """
    if len(words) > MOST:
        raise ProtocolError(f"it revokes {len(words)} nodes, more than {MOST}")
    try:
        found = {name: int(serial, 16) for name, serial in words.items()}
    except ValueError:
        raise ProtocolError("it revokes what is no certificate") from None
    for name, serial in found.items():
        if len(name) != _NAME_CHARS or not 0 <= serial < 1 << _SERIAL_BITS:
            raise ProtocolError("it revokes what is no certificate")
    return Revoked(found)
