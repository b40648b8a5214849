"""Bytes that no daemon, child or command line sends, drawn from a seed."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgpack

KINDS = ("garbage", "truncated", "oversized", "mutated", "wrong types", "misversioned", "replayed")


def framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


class Frames:
    """What to send to one port.

    Attributes:
        genuine: requests or hellos that are right in form; the port's owner must be able to take
            each, whole, without changing anything.
        recorded: streams of bytes as somebody else sent them once.
        node: a node's name among the wrong values. A user at the control socket may do to a node
            that lives what changes something, so there it is one that doesn't.
    """

    def __init__(
        self,
        dice: random.Random,
        genuine: Sequence[Mapping[str, Any]],
        recorded: Sequence[bytes] = (),
        node: str = "node-0",
    ) -> None:
        self._dice = dice
        self._node = node
        self.genuine = tuple(genuine)
        self.recorded = tuple(recorded)

    def draw(self) -> tuple[str, bytes]:
        """A kind of :data:`KINDS` and its bytes."""
        kind = self._dice.choice(KINDS if self.recorded else KINDS[:-1])
        makers: dict[str, Callable[[], bytes]] = {
            "garbage": self._garbage,
            "truncated": self._truncated,
            "oversized": self._oversized,
            "mutated": self._mutated,
            "wrong types": self._wrong_types,
            "misversioned": self._misversioned,
            "replayed": lambda: self._dice.choice(self.recorded),
        }
        return kind, makers[kind]()

    def _message(self) -> dict[str, Any]:
        return dict(self._dice.choice(self.genuine))

    def _garbage(self) -> bytes:
        data = self._dice.randbytes(self._dice.choice((1, 3, 4, 5, 17, 100, 3000)))
        return self._dice.choice((data, framed(data), b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64))

    def _truncated(self) -> bytes:
        whole = framed(msgpack.packb(self._message()))
        return whole[: self._dice.randrange(len(whole))]

    def _oversized(self) -> bytes:
        """Claims of a length that never comes, in the header or within msgpack."""
        claims = (
            struct.pack(">I", self._dice.choice((1 << 24, (1 << 24) + 1, 1 << 31, 0xFFFFFFFF))),
            framed(b"\xdd\xff\xff\xff\xff"),  # a list of 2^32 - 1
            framed(b"\xdf\xff\xff\xff\xff"),  # a map of as many
            framed(b"\xc6\xff\xff\xff\xff"),  # bytes of as many
            framed(b"\x81\xa1t" + b"\x91" * self._dice.choice((600, 5000)) + b"\xc0"),  # depth
            framed(b"\xc9\xff\xff\xff\xff\x01"),  # an extension
        )
        return self._dice.choice(claims) + self._dice.randbytes(self._dice.choice((0, 10, 2000)))

    def _mutated(self) -> bytes:
        whole = bytearray(framed(msgpack.packb(self._message())))
        for _ in range(self._dice.randint(1, 4)):
            whole[self._dice.randrange(len(whole))] = self._dice.randrange(256)
        return bytes(whole)

    def _wrong_types(self) -> bytes:
        """The right keys with the wrong values, keys left out, keys too many."""
        message = self._message()
        names = [name for name in message if name not in ("t", "do")]
        for name in names:
            if self._dice.random() < 0.4:
                message[name] = self._value(2)
            elif self._dice.random() < 0.2:
                del message[name]
        kind = self._dice.random()
        if kind < 0.2:
            message[self._dice.choice(("t", "do"))] = self._value(1)
        elif kind < 0.3:
            return framed(msgpack.packb(self._value(3)))
        message.setdefault("fuzz", self._value(2))
        return framed(msgpack.packb(message))

    def _misversioned(self) -> bytes:
        message = self._message()
        message["version"] = self._dice.choice((0, -1, 99, "1", None, [1], 2**63))
        if self._dice.random() < 0.5:
            message["cluster"] = self._dice.choice(("other/id", "", 7, None))
        return framed(msgpack.packb(message))

    def _value(self, depth: int) -> Any:
        simple: tuple[Any, ...] = (
            None, True, -1, 0, 2**63, -(2**63), 1e308, float("nan"), "", "x" * 300, b"\xff\0",
            "../../etc/passwd", self._node, [], {},
        )  # fmt: skip
        if not depth or self._dice.random() < 0.6:
            return self._dice.choice(simple)
        inner = [self._value(depth - 1) for _ in range(self._dice.randint(1, 3))]
        return inner if self._dice.random() < 0.5 else {str(i): v for i, v in enumerate(inner)}
