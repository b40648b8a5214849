"""How the ranks of a ring show one another that they are who they should be.

MLX takes whoever connects for the left neighbour. So before any data flows each rank sends a digest
over each of its two links, in both directions, that only who knows the world's secret can make.
Whoever passes on what the true neighbour says is not noticed by that (docs/security.md).
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

import mlx.core as mx
import numpy as np

from elasticd.errors import ProtocolError
from elasticd.types import Secret

DIGEST_BYTES = 32
SECONDS_A_RANK = 0.1
"""More patience: a ring comes up rank by rank."""
_LINK = struct.Struct("<IIIB")


class StrangerError(ProtocolError):
    """Somebody else than the rank before it seems to be at the address of rank ``at``; ``wrong``:
    and has shown something wrong, else nothing."""

    def __init__(self, at: int, text: str, *, wrong: bool) -> None:
        super().__init__(text)
        self.at, self.wrong = at, wrong


class Toward(IntEnum):
    """In which direction of the ring something goes."""

    RIGHT = 1
    LEFT = 2


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the ranks of one world show.

    Attributes:
        generation: its hash.
        patience_seconds: so long a neighbour that has connected may stay silent.
        on_silence: called in a thread if it does; never returns.
        peer: says from where the left neighbour has connected.
    """

    secret: Secret
    generation: bytes
    rank: int
    size: int
    patience_seconds: float
    on_silence: Callable[[StrangerError], None]
    peer: Callable[[], str]

    def digest(self, rank: int, way: Toward) -> bytes:
        """What ``rank`` shows its neighbour in that direction."""
        neighbour = (rank + (1 if way is Toward.RIGHT else -1)) % self.size
        link = _LINK.pack(self.size, rank, neighbour, way)
        return hashlib.blake2b(
            link + self.generation, key=self.secret, digest_size=DIGEST_BYTES
        ).digest()

    def meet(self, group: mx.distributed.Group) -> None:
        """Show the right neighbour who we are, and see who the left one is.

        Raises:
            StrangerError: it has shown something wrong, or has gone.
            RuntimeError: the right one has gone.
        """
        left, right = (self.rank - 1) % self.size, (self.rank + 1) % self.size
        mine = mx.array(np.frombuffer(self.digest(self.rank, Toward.RIGHT), np.uint8))
        mx.eval(mx.distributed.send(mine, right, group=group))
        with self._patience():
            try:
                shown = mx.distributed.recv((DIGEST_BYTES,), mx.uint8, left, group=group)
                mx.eval(shown)
            except RuntimeError as error:
                raise self._stranger("hung up before it had shown", wrong=False) from error
        if not hmac.compare_digest(np.asarray(shown).tobytes(), self.digest(left, Toward.RIGHT)):
            raise self._stranger("has not shown", wrong=True)

    def check(self, shown: list[bytes]) -> None:
        """Check what has come from the right, where each rank passes on what comes to it.

        Raises:
            StrangerError: it is not what the ranks show to the left.
        """
        for distance in range(1, self.size):
            rank = (self.rank + distance) % self.size
            if not hmac.compare_digest(shown[rank], self.digest(rank, Toward.LEFT)):
                text = f"what came through it from rank {rank} does not show the world's secret"
                raise StrangerError(rank, text, wrong=True)

    def _stranger(self, has: str, *, wrong: bool) -> StrangerError:
        text = f"who connected from {self.peer()} {has} that it knows the world's secret"
        return StrangerError(self.rank, text, wrong=wrong)

    @contextmanager
    def _patience(self) -> Iterator[None]:
        """MLX waits for ever, and nothing can end that but the end of the process."""
        seconds = self.patience_seconds + SECONDS_A_RANK * self.size
        silent = self._stranger(f"has not shown in {seconds:g} s", wrong=False)
        timer = threading.Timer(seconds, self.on_silence, (silent,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
