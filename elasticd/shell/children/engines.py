"""What one engine alone wants done with the process that holds its rank's group."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from elasticd.core.words import effects as e
from elasticd.core.words import ring
from elasticd.core.words.engines import EngineEffect, EngineOrder
from elasticd.ipc.listening import port_use
from elasticd.shell.children.running import RunningChild

_LISTEN_POLL_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Engines:
    """``do`` lets work go on in the background."""

    running: Mapping[e.ChildId, RunningChild]
    post: Callable[[e.Event], None]
    do: Callable[[Coroutine[Any, Any, None]], None]

    def perform(self, effect: EngineEffect) -> None:
        one = self.running.get(effect.child)
        if one is None:
            return
        with one.served():
            match effect:
                case ring.StopReducer():
                    one.child.kill(signal.SIGSTOP)
                case ring.ContinueReducer():
                    one.child.kill(signal.SIGCONT)
                case _:
                    assert_never(effect)

    def ordered(self, one: RunningChild, order: EngineOrder) -> None:
        """A reducer was told of its world."""
        if isinstance(order, ring.FormRing):
            port = int(order.hosts[order.rank].rpartition(":")[2])
            self.do(self._await_listening(one, port))

    async def _await_listening(self, one: RunningChild, port: int) -> None:
        """Poll its sockets: while the ring comes up it holds its GIL and can't tell us."""
        while one.id in self.running:
            use = await asyncio.to_thread(port_use, one.child.pid, port)
            if use != "none" and one.id in self.running:
                seen = ring.ReducerListens if use == "listens" else ring.ReducerTaken
                self.post(seen(one.id))
                return
            await asyncio.sleep(_LISTEN_POLL_SECONDS)
