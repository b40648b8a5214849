"""What daemons say to one another: all of it, and its wire form.

:func:`encode` and :func:`decode` are the wire form; an unknown type, or a field that doesn't
fit, is a ProtocolError.
"""

from __future__ import annotations

from elasticd.core.words.codec import Plain, from_plain, to_plain
from elasticd.core.words.tables import OfTables
from elasticd.core.words.views import Carry, Heartbeat, OfLinks, OfViews, Probe, Vouch
from elasticd.core.words.worlds import ToLeader, ToMember
from elasticd.errors import ProtocolError

Message = OfLinks | OfViews | OfTables | ToLeader | ToMember

UNNUMBERED = (Heartbeat, Probe, Vouch, Carry)
"""What is outside of a session's order: of no use once it is late, or ordered within."""

_TYPES: dict[str, type] = {kind.__name__: kind for kind in Message.__args__}


def encode(message: Message) -> dict[str, Plain]:
    return {"t": type(message).__name__, **to_plain(message)}


def decode(plain: dict[str, Plain]) -> Message:
    """Raises ProtocolError for an unknown type or a field that doesn't fit."""
    fields = dict(plain)
    kind = _TYPES.get(str(fields.pop("t", "")))
    if kind is None:
        raise ProtocolError(f"unknown message {plain.get('t')!r}")
    message: Message = from_plain(kind, fields)
    return message
