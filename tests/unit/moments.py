"""Lets something happen at each moment of what a function does with the disk, one after another."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

_MODULES = ("posix", "_io", "io")


@dataclass(slots=True)
class Moment:
    """``happens`` once, just before the call number ``at`` of the system while :meth:`counted`."""

    at: int
    happens: Callable[[], object]
    calls: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def came(self) -> bool:
        """Whether there were so many calls."""
        return self.calls > self.at

    @contextmanager
    def counted(self) -> Iterator[None]:
        """The calls of this thread."""
        sys.setprofile(self._hear)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _hear(self, frame: FrameType, event: str, called: Any) -> None:
        known = event == "c_call" and getattr(called, "__module__", "") in _MODULES
        if not known or called.__name__ == "fspath":
            return
        with self._lock:
            now, self.calls = self.calls == self.at, self.calls + 1
        if now:
            self.happens()
