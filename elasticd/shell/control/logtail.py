"""The last lines of what came in pieces."""

from __future__ import annotations

from collections import deque


class Tail:
    """Keeps the last ``count`` lines of what it is given; a line without its end counts as one."""

    def __init__(self, count: int) -> None:
        self._lines: deque[bytes] = deque(maxlen=count + 1)
        self._count = count

    def add(self, data: bytes) -> None:
        first, *rest = data.split(b"\n")
        if self._lines:
            self._lines[-1] += first
        else:
            self._lines.append(first)
        self._lines.extend(rest)

    def take(self) -> bytes:
        """Them; the last is empty if all lines have ended."""
        lines = list(self._lines)
        ended = bool(lines) and not lines[-1]
        kept = self._count + 1 if ended else self._count
        return b"\n".join(lines[-kept:]) if kept else b""
