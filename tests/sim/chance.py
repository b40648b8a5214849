"""Chance in streams, one for each consumer: what one draws shifts nothing that another draws."""

from __future__ import annotations

import random


class Chances:
    """All streams of one run; each depends on the seed and on its name alone."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams: dict[str, random.Random] = {}

    def of(self, *whose: object) -> random.Random:
        """The stream of that name; the same one each time."""
        name = " ".join(map(str, whose))
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = random.Random(f"{self._seed} {name}")
        return stream

    def state(self) -> str:
        """The same after the same draws. The streams are spent by it."""
        return " ".join(f"{stream.getrandbits(32):x}" for stream in self._streams.values())
