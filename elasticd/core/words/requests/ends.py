"""How any answer may end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failed:
    """``code`` is the command's exit status."""

    error: str
    code: int = 1


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """Behind the last frame of a stream."""

    end: bool = True
