"""Drives the control plane: one event at a time in, effects performed in order, one timer."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import cast

from elasticd.core.endpoint import Endpoint
from elasticd.core.words.effects import Inward, Outward, Persist, Tick, Transmit
from elasticd.shell.clock import monotonic_seconds
from elasticd.types import NodeId

MAX_QUEUED_EVENTS = 100_000
_SHORTEST_SLEEP_SECONDS = 0.001


class ControlPlane:
    """Runs in the event loop's thread. ``perform`` must not block for longer than a disk sync.

    ``failed`` is called once with the exception that stopped it: a control plane that broke an
    invariant must not go on.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        perform: Callable[[Outward], None],
        failed: Callable[[BaseException], None],
        persist: Callable[[Sequence[Persist]], None] | None = None,
    ) -> None:
        """``persist``: performs what is to be journalled together; None: ``perform`` does, one by
        one."""
        self._endpoint = endpoint
        self._perform = perform
        self._persist = persist
        self._failed = failed
        self._events: deque[Inward] = deque()
        self._busy = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._awaited: tuple[Callable[[], bool], asyncio.Event] | None = None

    def start(self) -> None:
        self.post(Tick())

    def stop(self) -> None:
        """Take no more events. Idempotent."""
        self._stopped = True
        self._events.clear()
        if self._timer is not None:
            self._timer.cancel()

    def last_words(self, event: Inward) -> None:
        """Let one that has failed tell the other nodes something; nothing is journalled."""
        with contextlib.suppress(Exception):  # the top of a process that is ending anyway
            for effect in self._endpoint.step(monotonic_seconds(), event):
                if isinstance(effect, Transmit):
                    self._perform(effect)

    def post(self, event: Inward) -> None:
        """Take an event in. Events that effects cause wait until all effects are performed."""
        if self._stopped:
            return
        if len(self._events) >= MAX_QUEUED_EVENTS:
            self._fail(RuntimeError(f"{MAX_QUEUED_EVENTS} events wait"))
            return
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                event = self._events.popleft()
                self._perform_all(self._endpoint.step(monotonic_seconds(), event))
        except Exception as error:
            self._fail(error)
        finally:
            self._busy = False
        self._arm()

    def _perform_all(self, effects: Sequence[Outward]) -> None:
        """In order; neighbours that are to be journalled wait for the disk once."""
        for kind, found in groupby(effects, type):
            if kind is Persist and self._persist is not None:
                self._persist(cast(list[Persist], list(found)))
                self._tell_who_waits()
                continue
            for effect in found:
                self._perform(effect)
                self._tell_who_waits()

    async def until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until effects have made ``ready`` true, but not for longer. One at a time."""
        if ready():
            return
        event = asyncio.Event()
        self._awaited = ready, event
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    def relay(self, node: NodeId) -> NodeId | None:
        """Who hears a node whose link is dead now; None: the link is enough, or all there is."""
        return self._endpoint.links.relay(node, monotonic_seconds())

    def _tell_who_waits(self) -> None:
        if self._awaited is not None:
            ready, event = self._awaited
            if ready():
                event.set()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._stopped:
            return
        delay = max(_SHORTEST_SLEEP_SECONDS, self._endpoint.next_deadline() - monotonic_seconds())
        self._timer = asyncio.get_running_loop().call_later(delay, self.post, Tick())

    def _fail(self, error: BaseException) -> None:
        self.stop()
        self._failed(error)
