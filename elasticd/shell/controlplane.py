"""Drives the control plane: one event at a time in, effects performed in order, one timer.

Records go to the journal in another thread. Effects behind them wait for the disk, and so do events
(core/duties.py); the loop goes on with everything else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from elasticd.core.duties import Duties, Flush, Mark
from elasticd.core.endpoint import Endpoint
from elasticd.core.words.effects import Inward, Leave, Outward, Persist, Tick
from elasticd.shell.clock import monotonic_seconds
from elasticd.types import NodeId

BEAT_SECONDS = 0.25
"""Between two heartbeats while the journal is written."""
_SHORTEST_SLEEP_SECONDS = 0.001


class ControlPlane:
    """Runs in the event loop's thread. ``perform`` must not block.

    ``persist`` returns when the records are durable, all or none. ``failed`` is called once with
    the exception that stopped it: a control plane that broke an invariant must not go on.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        perform: Callable[[Outward], None],
        failed: Callable[[BaseException], None],
        persist: Callable[[Sequence[Persist]], Awaitable[None]],
    ) -> None:
        self._endpoint = endpoint
        self._perform = perform
        self._persist = persist
        self._failed = failed
        self._duties = Duties(endpoint)
        self._busy = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._flush: asyncio.Task[None] | None = None
        self._awaited: list[tuple[Callable[[], bool], asyncio.Event]] = []

    def start(self) -> None:
        self.post(Tick())

    def stop(self) -> None:
        """Take no more events. Idempotent. A write that has begun goes on: :meth:`flushed`."""
        self._stopped = True
        for mark in self._duties.clear():
            mark.passed()
        self._tell_who_waits()
        if self._timer is not None:
            self._timer.cancel()

    async def flushed(self, seconds: float) -> bool:
        """Wait for the write that has begun, but not for longer; whether none goes on."""
        if self._flush is not None:
            await asyncio.wait([self._flush], timeout=seconds)
        return self._flush is None or self._flush.done()

    def last_words(self, event: Leave) -> None:
        """Let one that has failed tell the other nodes why it goes; nothing is journalled."""
        with contextlib.suppress(Exception):  # the top of a process that is ending anyway
            for effect in self._endpoint.last_words(monotonic_seconds(), event):
                self._perform(effect)

    def stuck(self) -> bool:
        """Whether the disk holds the control plane up for so long that the others should do
        without this node."""
        return self._duties.stuck(monotonic_seconds())

    def post(self, event: Inward) -> None:
        """Take an event in. Events that effects cause wait until all effects are performed."""
        if self._stopped:
            return
        try:
            self._duties.post(event)
        except Exception as error:
            self._fail(error)
            return
        self._go_on()

    def _go_on(self) -> None:
        if self._busy or self._duties.flushing:
            return
        self._busy = True
        try:
            while (todo := self._duties.next(monotonic_seconds())) is not None:
                if isinstance(todo, Flush):
                    self._begin(todo)
                elif isinstance(todo, Mark):
                    todo.passed()
                else:
                    self._perform(todo)
                    self._tell_who_waits()
            self._tell_who_waits()
        except Exception as error:
            self._fail(error)
        finally:
            self._busy = False
        self._arm()

    def _begin(self, flush: Flush) -> None:
        self._flush = asyncio.ensure_future(self._write(flush))

    async def _write(self, flush: Flush) -> None:
        try:
            await self._persist(flush.records)
        except Exception as error:
            self._fail(error)
            return
        self._duties.flushed()
        if not self._stopped:
            self._go_on()

    async def until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until ``ready`` is true and its effects are performed, but not for longer."""
        if self._is(ready):
            return
        waits = ready, asyncio.Event()
        self._awaited.append(waits)
        try:
            await _wait(waits[1], seconds)
        finally:
            self._awaited.remove(waits)

    async def caught_up(self, seconds: float) -> None:
        """Wait until the effects are performed of all that the node knows now, but not for longer.
        What it comes to know meanwhile is not waited for."""
        if self._stopped:
            return
        passed = asyncio.Event()
        self._duties.mark(passed.set)
        self._go_on()
        await _wait(passed, seconds)

    def relay(self, node: NodeId) -> NodeId | None:
        """Who hears a node whose link is dead now; None: the link is enough, or all there is."""
        return self._endpoint.links.relay(node, monotonic_seconds())

    def _tell_who_waits(self) -> None:
        for ready, event in self._awaited:
            if self._is(ready):
                event.set()

    def _is(self, ready: Callable[[], bool]) -> bool:
        return ready() and self._duties.done

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._stopped:
            return
        loop = asyncio.get_running_loop()
        if self._duties.flushing:
            self._timer = loop.call_later(BEAT_SECONDS, self._beat)
            return
        delay = max(_SHORTEST_SLEEP_SECONDS, self._endpoint.next_deadline() - monotonic_seconds())
        self._timer = loop.call_later(delay, self.post, Tick())

    def _beat(self) -> None:
        """The disk takes its time; the others need to know that this node lives."""
        for effect in self._duties.beats(monotonic_seconds()):
            self._perform(effect)
        self._arm()

    def _fail(self, error: BaseException) -> None:
        self.stop()
        self._failed(error)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
