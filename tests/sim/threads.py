"""A thread of a simulated process: a generator that yields what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from elasticd.errors import GenerationLost

from .process import Process

_WAKE_SECONDS = 0.001
"""A thread that is woken goes on after so long at most. What woke it may be over by then."""


@dataclass(slots=True, eq=False)
class Sleep:
    """Work that takes this long. Nothing interrupts it."""

    seconds: float


@dataclass(slots=True, eq=False)
class Until:
    """Wait for something that is looked for whenever the process has taken something in."""

    ready: Callable[[], bool]
    woken: bool = False


@dataclass(slots=True, eq=False)
class Collective:
    """Wait until what ``begin`` is given is called; or fall out of that with GenerationLost."""

    begin: Callable[[Callable[[], None]], None]


Wait = Sleep | Until | Collective


class Thread:
    """Goes on where it stood, once what it waits for is there."""

    def __init__(self, process: Process) -> None:
        self._process, self._chance = process, process.chance("wakes")
        self._script: Generator[Wait, None, None] | None = None
        self._waits: Wait | None = None

    def start(self, script: Generator[Wait, None, None]) -> None:
        self._script = script
        self._go_on()

    def _go_on(self, error: GenerationLost | None = None) -> None:
        assert self._script is not None
        while True:
            self._waits = None
            try:
                waits = next(self._script) if error is None else self._script.throw(error)
            except StopIteration:
                return
            error, self._waits = None, waits
            match waits:
                case Sleep(seconds):
                    self._process.later(seconds, self._go_on)
                case Collective(begin):
                    begin(partial(self._process.do, partial(self._done, waits)))
                case Until(ready):
                    if ready():
                        continue
                case _:
                    assert_never(waits)
            return

    def look(self) -> None:
        """The process has taken something in."""
        waits = self._waits
        if isinstance(waits, Until) and not waits.woken and waits.ready():
            waits.woken = True
            self._soon(partial(self._wake, waits))

    def _wake(self, waits: Until) -> None:
        waits.woken = False
        if waits.ready():
            self._go_on()

    def fall_out(self, evidence: str) -> None:
        """Nobody completes the collective that it may be in."""
        if isinstance(self._waits, Collective):
            self._soon(partial(self._done, self._waits, GenerationLost(evidence)))

    def _done(self, waits: Collective, error: GenerationLost | None = None) -> None:
        if self._waits is waits:
            self._go_on(error)

    def _soon(self, action: Callable[[], None]) -> None:
        self._process.later(self._chance.uniform(0.0, _WAKE_SECONDS), action)
