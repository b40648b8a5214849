"""Calls of ``run.on_main`` in a simulated script: what elasticd/train/steps/calling.py does."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING

from elasticd.types import Point

from .threads import Sleep, Until, Wait

if TYPE_CHECKING:
    from .trainer import Trainer

Waits = Generator[Wait, None, None]


class Over(Exception):
    """The job has ended while a call waited."""


class Calls:
    """Of one script. What all its calls have returned is part of its state: ``seen``."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.protocol = trainer, trainer.protocol
        self.seen = ""
        self.void = self.alone = False
        self._body, self._made, self._runs = -1, 0, 0

    @property
    def _most(self) -> int:
        return self.trainer.cluster.shapes[self.trainer.job].calls

    def is_past(self, step: int) -> bool:
        """Whether it makes no call any more in the body of that step."""
        return self._body > step

    def begin(self, body: int) -> None:
        self._body, self._made = body, 0
        with self.trainer.turn() as protocol:
            protocol.calls.begins(body)
        self.void = self.alone = False

    def end(self) -> None:
        if not (self.void or self.alone):
            with self.trainer.turn() as protocol:
                protocol.calls.ends(self._body, self._made)

    def above_update(self) -> Waits:
        """What the body calls before its grains."""
        yield from self._calls((self._body // 2) % (self._most + 1))

    def below_update(self) -> Waits:
        """What it calls behind its update, or above the loop."""
        yield from self._calls(self._body % (self._most + 1) if self._body else self._most)

    def _calls(self, count: int) -> Waits:
        for _ in range(count):
            yield from self._call(self._made)
            self._made += 1

    def _call(self, index: int) -> Waits:
        trainer, own = self.trainer, ""
        while not (self.void or self.alone):
            point = self.protocol.held.point
            assert point is not None
            step = point.step
            with trainer.turn() as protocol:
                protocol.calls.asks(self._body, index, step)
            answer = protocol.calls.called(self._body, index)
            match answer:
                case None:
                    trainer.phase("idle")
                    yield Until(partial(self._is_there, index, step))
                    trainer.phase("user")
                case "over":
                    raise Over
                case "void":
                    self.alone = True
                    if step < self._body:
                        self.void = True
                    else:
                        with trainer.turn() as protocol:
                            protocol.held.disown()
                case "run":
                    if not own:
                        yield Sleep(trainer.chance("calls").uniform(0.0, 0.2))
                        self._runs += 1
                        own = f"{trainer.name} {self._runs} {self._is_wrong} {point.lineage}"
                    with trainer.turn() as protocol:
                        protocol.calls.returned(self._body, index, own.encode())
                case bytes():
                    self._check(answer.decode(), point)
                    self._saw(answer)
                    return
        self._saw((own or trainer.name).encode())

    @property
    def _is_wrong(self) -> bool:
        return self.trainer.spoilt or bool(self.trainer.taint)

    def _check(self, result: str, point: Point) -> None:
        """What has run in a state that was given up, as it was wrong, counts nowhere else."""
        *_, wrong, lineage = result.split()
        entered = self.protocol.arrivals.world is None
        if wrong == str(True) and lineage != point.lineage and entered and not self._is_wrong:
            text = f"uses what was returned in a wrong state of {lineage}: {result}"
            self.trainer.cluster.checkers.broken(f"{self.trainer.name} {text}")

    def _is_there(self, index: int, step: int) -> bool:
        known = self.protocol.calls.called(self._body, index) is not None
        return known or not self.protocol.calls.has_asked(self._body, index, step)

    def _saw(self, data: bytes) -> None:
        self.seen = hashlib.blake2b(self.seen.encode() + data, digest_size=8).hexdigest()
