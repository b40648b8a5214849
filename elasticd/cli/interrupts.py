"""Ctrl-C, SIGTERM and a closed terminal, at moments that leave nothing half done."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Coroutine, Iterator
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(work: Coroutine[Any, Any, None]) -> None:
    """As ``asyncio.run``. The first of these signals cancels ``work``, which may tidy up in peace;
    KeyboardInterrupt comes when it has ended. Raised in the midst of a loop it would lame that.
    """
    if asyncio.run(_cancelled(work)):
        raise KeyboardInterrupt


async def _cancelled(work: Coroutine[Any, Any, None]) -> bool:
    """Whether a signal has ended the work."""
    loop, task, came = asyncio.get_running_loop(), asyncio.ensure_future(work), False

    def stop() -> None:
        nonlocal came
        if not came:
            came = True
            task.cancel()

    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not came:
            raise
    return came


class Interrupts:
    """While it is in force the first of these signals raises KeyboardInterrupt, but not within
    :meth:`held`. Another one changes nothing: it could come where the first is being dealt with,
    and keep that from being done.

    Signals that were ignored stay so, as under nohup. In another thread than the main one nothing
    is changed: no signal arrives there.
    """

    def __init__(self) -> None:
        self._held = 0
        self._pending = False
        self._raised = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._held:
            self._pending = True
        else:
            self._raise()

    def _raise(self) -> None:
        if not self._raised:
            self._raised = True
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Put the handlers in place, and the old ones back."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            for number, handler in before.items():
                if handler is not None:
                    signal.signal(number, handler)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Signals wait until the block is done."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if self._pending and not self._held:
            self._pending = False
            self._raise()
