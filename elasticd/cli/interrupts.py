"""Ctrl-C, SIGTERM and a closed terminal, at moments that leave nothing half done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Collection, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While it is in force the first of these signals raises KeyboardInterrupt, but not within
    :meth:`held`. Another one changes nothing: it could come where the first is being dealt with,
    and keep that from being done.

    Signals that were ignored stay so, as under nohup. In another thread than the main one nothing
    is changed: no signal arrives there.
    """

    def __init__(self, signals: Collection[signal.Signals] = SIGNALS) -> None:
        self._signals = signals
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
        before = {number: signal.getsignal(number) for number in self._signals}
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
