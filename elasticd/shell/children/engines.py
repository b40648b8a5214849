"""What one engine alone wants done with the process that holds its rank's group."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from elasticd.core.words import effects as e
from elasticd.core.words import ring
from elasticd.core.words.engines import EngineEffect, EngineOrder
from elasticd.ipc.listening import has_let_in, has_tcp_sockets, is_listening
from elasticd.shell.children.running import RunningChild

_LISTEN_POLL_SECONDS = 0.002
_POLLS_A_LOOK, _LOOKS = 50, 3
"""A socket that doesn't listen yet is seen once, if at all."""


@dataclass(frozen=True, slots=True)
class Engines:
    """``do`` lets work go on in the background."""

    running: Mapping[e.ChildId, RunningChild]
    post: Callable[[e.Event], None]
    do: Callable[[Coroutine[Any, Any, None]], object]

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
            self.do(self._await_listening(one, order))

    async def _await_listening(self, one: RunningChild, order: ring.FormRing) -> None:
        """Poll its sockets: while the ring comes up it holds its GIL and can't tell us."""
        port, pid = int(order.hosts[order.rank].rpartition(":")[2]), one.child.pid
        listens_first = order.rank < order.size - 1
        looks = 0
        for poll in itertools.count():
            listens, taken = await asyncio.to_thread(is_listening, pid, port), False
            if not listens and poll % _POLLS_A_LOOK == _POLLS_A_LOOK - 1:
                taken = await asyncio.to_thread(has_let_in, pid, port)
                if not taken and listens_first:
                    # Who was let in may have gone: then there are sockets, and none listens.
                    looks = looks + 1 if await asyncio.to_thread(has_tcp_sockets, pid) else 0
                    taken = looks == _LOOKS
            if one.id not in self.running:
                return
            if listens or taken:
                self.post((ring.ReducerListens if listens else ring.ReducerTaken)(one.id))
                return
            await asyncio.sleep(_LISTEN_POLL_SECONDS)
