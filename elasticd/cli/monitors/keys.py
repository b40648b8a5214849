"""Keys of a terminal, without waiting for a line's end; it is as before afterwards."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from typing import Literal

Key = Literal["quit", "next", "previous", "logs", "performance", "values"]

_PLAIN: dict[bytes, Key] = {
    b"q": "quit",
    b"Q": "quit",
    b"l": "logs",
    b"L": "logs",
    b"p": "performance",
    b"P": "performance",
    b"v": "values",
    b"V": "values",
    b"\t": "next",
}
_BEHIND_ESCAPE: dict[bytes, Key] = {
    b"A": "previous",  # up
    b"B": "next",  # down
    b"C": "next",  # right
    b"D": "previous",  # left
    b"Z": "previous",  # tab with shift
}
_STROKE = re.compile(rb"\x1b[\[O][0-9;]*([A-Za-z~])|(\x1b|[^\x1b])", re.DOTALL)


def strokes(data: bytes) -> list[Key]:
    """What was pressed, as far as it means anything."""
    found = (
        _BEHIND_ESCAPE.get(stroke[1]) if stroke[1] else _PLAIN.get(stroke[2])
        for stroke in _STROKE.finditer(data)
    )
    return [key for key in found if key is not None]


class Keyboard:
    """Of the terminal on stdin, if there is one."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Keys come at once and are not shown. Ctrl-C is a signal as ever, Ctrl-Z is off."""
        if self._fd is None:
            yield
            return
        before = termios.tcgetattr(self._fd)
        try:
            tty.setcbreak(self._fd, termios.TCSANOW)
            now = termios.tcgetattr(self._fd)
            now[6][termios.VSUSP] = os.fpathconf(self._fd, "PC_VDISABLE").to_bytes()
            termios.tcsetattr(self._fd, termios.TCSANOW, now)
            yield
        finally:
            with contextlib.suppress(termios.error):  # the terminal may be gone
                termios.tcsetattr(self._fd, termios.TCSADRAIN, before)

    def pressed(self, seconds: float) -> list[Key]:
        """What is pressed within that time; it returns at the first key.

        Raises:
            EOFError: the terminal is gone.
        """
        if self._fd is None:
            time.sleep(seconds)
            return []
        if not select.select([self._fd], [], [], seconds)[0]:
            return []
        data = os.read(self._fd, 1024)
        if not data:
            raise EOFError
        return strokes(data)
