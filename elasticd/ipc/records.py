"""What trainer and reducer tell each other, and the tag that travels through the collective."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from enum import IntEnum

from elasticd.errors import ProtocolError
from elasticd.types import Tag

GENERATION_BYTES = 16
MAX_PLAN_BYTES = 1 << 20

_RECORD = struct.Struct("<III4xQQ16s")
_TAG = struct.Struct("<IIIIQQ16s16s")
RECORD_BYTES = _RECORD.size
SEAL_BYTES = 64
NO_PLAN = bytes(16)


class Kind(IntEnum):
    """What a record asks for. The values are far apart: a wrong one is not a near miss."""

    PLAN = 0x9A1D01
    CHUNK = 0x9A1D02
    BARRIER = 0x9A1D03
    FORM = 0x9A1D04
    WALK = 0x9A1D05
    """In tags only: one message of a chunk whose sums are made along the ring."""


def generation_hash(generation: Tag) -> bytes:
    """16 bytes that stand for a generation."""
    text = f"{generation.counter}\0{generation.leader}\0{generation.nonce}"
    return hashlib.blake2b(text.encode(), digest_size=GENERATION_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Record:
    """One request of the trainer and, unchanged, the reducer's answer to it.

    ``serial`` counts the requests of a generation; it is the same on every rank. ``bucket`` is the
    number of a chunk in its vector. ``extent`` is the slot of a chunk, or the bytes of a plan,
    which follow the record and have no answer.
    """

    kind: Kind
    serial: int
    step: int
    bucket: int
    extent: int
    generation: bytes

    def pack(self) -> bytes:
        """``RECORD_BYTES`` bytes."""
        return _RECORD.pack(
            self.kind, self.bucket, self.extent, self.serial, self.step, self.generation
        )

    @classmethod
    def unpack(cls, data: bytes) -> Record:
        """Inverse of :meth:`pack`.

        Raises:
            ProtocolError: no such kind of record.
        """
        kind, bucket, extent, serial, step, generation = _RECORD.unpack(data)
        try:
            return cls(Kind(kind), serial, step, bucket, extent, generation)
        except ValueError as error:
            raise ProtocolError(f"a record of unknown kind {kind:#x}") from error

    def seal(self, plan: bytes, length: int, rank: int) -> bytes:
        """The tag (``SEAL_BYTES``) of what ``rank`` sends for this request into the collective.

        ``plan`` is the digest of its layout, ``length`` the elements of its chunk.
        """
        return _TAG.pack(
            self.kind, self.bucket, length, rank, self.serial, self.step, self.generation, plan
        )


def describe_seal(data: bytes) -> str:
    """A tag in words, for evidence."""
    kind, bucket, length, rank, serial, step, generation, plan = _TAG.unpack(data)
    name = Kind(kind).name.lower() if kind in set(Kind) else "unreadable data"
    return (
        f"{name} {serial} (step {step}, bucket {bucket}, {length} elements, plan {plan.hex()[:6]},"
        f" generation {generation.hex()[:6]}, rank {rank})"
    )
