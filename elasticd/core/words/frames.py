"""What travels between two daemons: a message, its place in the order, an acknowledgement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticd.core.words.codec import Plain, from_plain
from elasticd.core.words.messages import Message, decode, encode
from elasticd.errors import ProtocolError

VERSION = 1
KIND = "frame"
"""The name of a frame among what else two daemons say."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a session (core/membership/sessions.py).

    Attributes:
        boots: the run of the sending daemon and the one that it is for; for another it is stale.
        stream: which of the sender's streams ``number`` counts; it begins a new one when it had to
            give messages up.
        number: place of ``message`` in the stream, from 1; 0: outside of it.
        serial: counts whatever the sender has said in this session, heartbeats too: one that was
            overtaken by something newer is old news. 0 of a bare acknowledgement.
        ack_stream: the receiver's stream that ``ack`` speaks of.
        ack: all numbers of that stream up to this one have arrived.
        message: None if there is nothing to say but the acknowledgement.
    """

    boots: tuple[str, str]
    stream: int
    number: int
    serial: int
    ack_stream: int
    ack: int
    message: Message | None


def encode_frame(frame: Frame) -> dict[str, Plain]:
    """The map that msgpack carries: ``{"t": "frame", "v": VERSION, …}``."""
    return {
        "t": KIND,
        "v": VERSION,
        "boots": list(frame.boots),
        "place": [
            frame.stream,
            frame.number,
            frame.serial,
            frame.ack_stream,
            frame.ack,
        ],
        "message": encode(frame.message) if frame.message is not None else None,
    }


def is_frame(plain: dict[str, Any]) -> bool:
    return plain.get("t") == KIND


def decode_frame(plain: dict[str, Any]) -> Frame:
    """Raises ProtocolError for another version, and for whatever is no frame."""
    if plain.get("v") != VERSION:
        raise ProtocolError(f"a frame of version {str(plain.get('v'))[:20]!r}, not {VERSION}")
    if set(plain) != {"t", "v", "boots", "place", "message"}:
        raise ProtocolError(f"a frame with the fields {sorted(plain)[:8]}")
    boots = from_plain(tuple[str, str], plain["boots"])
    place = from_plain(tuple[int, int, int, int, int], plain["place"])
    if min(place) < 0 or place[0] == 0:
        raise ProtocolError("a frame with a place that is none")
    body = plain["message"]
    if body is not None and not isinstance(body, dict):
        raise ProtocolError("a frame whose message is no map")
    if place[1] and body is None:
        raise ProtocolError("a frame with a number and no message")
    message = decode(body) if body is not None else None
    stream, number, serial, ack_stream, ack = place
    return Frame(boots, stream, number, serial, ack_stream, ack, message)
