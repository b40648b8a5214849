"""Sees from a thread of its own when the event loop does not turn, and where its code is then.

While the loop is held up no heartbeat leaves the daemon, and its peers soon take it for dead. The
thread asks the loop for a sign of life several times a second. Where none comes, it looks at the
loop's stack, by ``sys._current_frames``.

Not every late sign is the fault of code. A Mac that slept, a daemon that was stopped (SIGSTOP) and
one that got no processor were late as a whole: then this thread's own waits were too long as well,
and the process used no processor time meanwhile. Such time is told apart, and counts as no stall.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import structlog

from elasticd.shell.clock import monotonic_seconds

STALL_SECONDS = 0.1
"""A loop that is held up for longer is told of."""
ASK_SECONDS = 0.05
"""Between two questions; the beginning of a stall is known no better than that."""
LONG_SECONDS = 5.0
"""A stall that lasts so long is told of before it ends: it may never end."""
AWAY_SECONDS = 1.0
"""A process that did not run for so long is told of."""
STALLED = "the loop was stalled"
LINES_PER_MINUTE = 10
SHOWN_FRAMES = 8
_WAITING = ("selectors", "select")
"""Module and function in which a loop waits when it has nothing to do."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LoopStall:
    """``where``: the innermost calls, the last one first; empty: none of the loop's code ran, it
    waited for the interpreter or a processor."""

    seconds: float
    where: str

    @property
    def shown(self) -> str:
        """For people."""
        return self.where or "no code of the loop: it waited for the interpreter or a processor"


@dataclass(slots=True)
class StallCount:
    """What was seen since the start.

    Attributes:
        longest: None: there was no stall.
    """

    count: int = 0
    longest: LoopStall | None = None

    def add(self, stall: LoopStall) -> bool:
        """Whether none was longer or as long."""
        self.count += 1
        if self.longest is not None and stall.seconds <= self.longest.seconds:
            return False
        self.longest = stall
        return True

    def plain(self) -> dict[str, Any]:
        """As ``status --json`` has it."""
        longest = self.longest
        return {
            "stalls": self.count,
            "longest_stall_seconds": 0.0 if longest is None else round(longest.seconds, 3),
            "longest_stall": None if longest is None else longest.shown,
        }


def present_seconds(waited: float, wanted: float, processor: float) -> float:
    """How much of a wait this process was there, to be given a sign of life.

    Arguments are in seconds: how long the wait took, how long it was to take, and how much
    processor time the process used meanwhile. Code that keeps the interpreter to itself makes the
    wait too long as well, but uses the processor.
    """
    late = waited - wanted
    if late <= wanted or processor >= late / 2:
        return waited
    return wanted


def frame_of(thread: int) -> FrameType | None:
    """Where a thread of this process is now; None: it has ended.

    Python up to 3.12.0 holds a lock meanwhile that the end of a thread-local value takes, too. If
    garbage with such values is collected in between, the process stands still for ever.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames().get(thread)
    finally:
        if collects:
            gc.enable()


def where(frame: FrameType | None) -> str:
    """The innermost calls of a stack, in one line; empty if it is a loop that waits.

    Names and numbers of lines alone: the lines themselves are on a disk that may hang.
    """
    if frame is None or (frame.f_globals.get("__name__"), frame.f_code.co_name) == _WAITING:
        return ""
    calls: list[str] = []
    while frame is not None and len(calls) < SHOWN_FRAMES:
        code = frame.f_code
        calls.append(f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " < ".join(calls)


@dataclass(slots=True)
class StallWatch:
    """Watches the loop in which :meth:`start` is called, until :meth:`close`.

    Attributes:
        seen: what it has found so far.
        caught: called in the watching thread as soon as a stall is one, while it goes on.
        told: called in that thread when a stall is over.
    """

    seen: StallCount = field(default_factory=StallCount)
    caught: Callable[[str], object] = lambda where: None
    told: Callable[[LoopStall], object] = lambda stall: None
    _lines: list[float] = field(default_factory=list)
    _unsaid: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """To be called in the loop's thread."""
        loop, watched = asyncio.get_running_loop(), threading.get_ident()
        self._thread = threading.Thread(
            target=self._watch, args=(loop, watched), name="stalls", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the thread; returns at once."""
        self._over.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, watched: int) -> None:
        while not self._wait(self._over, ASK_SECONDS)[0]:
            alive = threading.Event()
            try:
                loop.call_soon_threadsafe(alive.set)
            except RuntimeError:  # it has ended
                return
            self._await(alive, watched)

    def _await(self, alive: threading.Event, watched: int) -> None:
        """Wait for one sign of life, and tell if it was late."""
        present, found, caught, long = 0.0, "", False, False
        while not self._over.is_set():
            answered, seconds = self._wait(alive, ASK_SECONDS)
            present += seconds
            if answered:
                break
            if present < STALL_SECONDS:
                continue
            look = where(frame_of(watched))
            if alive.is_set():
                break  # that may be what it has done since
            found = found or look
            if not caught:
                caught = True
                self.caught(found)
            if present >= LONG_SECONDS and not long:
                long = True
                self._say("the loop is stalled, and still is", LoopStall(present, found))
        if present >= STALL_SECONDS:
            stall = LoopStall(present, found)
            self._count(stall)
            self.told(stall)

    def _wait(self, event: threading.Event, wanted: float) -> tuple[bool, float]:
        """Whether it came, and how long this process was there for it."""
        began, used = monotonic_seconds(), time.process_time()
        came = event.wait(wanted)
        waited = monotonic_seconds() - began
        present = present_seconds(waited, wanted, time.process_time() - used)
        if (away := waited - present) >= AWAY_SECONDS:
            log.info(
                "this process did not run: the machine slept, or was too busy, or it was stopped",
                seconds=round(away, 3),
            )
        return came, present

    def _count(self, stall: LoopStall) -> None:
        self._say(STALLED, stall, always=self.seen.add(stall))

    def _say(self, text: str, stall: LoopStall, *, always: bool = False) -> None:
        """``always``: the longest so far, of which the log tells however many lines there were."""
        now = monotonic_seconds()
        self._lines = [at for at in self._lines if now - at < 60.0]
        if len(self._lines) >= LINES_PER_MINUTE and not always:
            self._unsaid += 1
            return
        self._lines.append(now)
        unsaid, self._unsaid = self._unsaid, 0
        log.warning(text, seconds=round(stall.seconds, 3), where=stall.shown, unsaid=unsaid)
