"""What daemons say to one another: all of it, and its wire form.

:func:`encode` and :func:`decode` are the wire form; an unknown type, or a field that doesn't
fit, is a ProtocolError.
"""

from __future__ import annotations

from elasticd.core.words import versions
from elasticd.core.words.codec import Plain, Words
from elasticd.core.words.tables import OfTables
from elasticd.core.words.views import Carry, Heartbeat, OfLinks, OfViews, Probe, Vouch
from elasticd.core.words.worlds import ToLeader, ToMember

Message = OfLinks | OfViews | OfTables | ToLeader | ToMember

UNNUMBERED = (Heartbeat, Probe, Vouch, Carry)
"""What is outside of a session's order: of no use once it is late, or ordered within."""

DAEMONS: Words[Message] = Words(Message)


def encode(message: Message) -> dict[str, Plain]:
    return DAEMONS.encode(message)


def since(message: Message) -> int:
    """The version of the protocol in which it was added; of one that is carried: that one's."""
    if isinstance(message, Carry):
        carried = message.frame.get("message")
        kinds = DAEMONS.named.get(str(carried.get("t")), []) if isinstance(carried, dict) else []
        return max(map(versions.since, kinds), default=versions.OLDEST)
    return versions.since(message)


def decode(plain: dict[str, Plain]) -> Message:
    """Raises ProtocolError for an unknown type or a field that doesn't fit."""
    return DAEMONS.decode(plain)
