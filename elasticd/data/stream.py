"""A stream of samples: what it is made of, and a fresh iterator at each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticd.data.ahead import Prefetched
from elasticd.data.cursors import Cursor, Mapped, Shuffled, Windowed
from elasticd.errors import UsageError


@dataclass(frozen=True, slots=True, eq=False)
class SampleStream:
    """Samples in one order, for ``elasticd.Run(data=…)``. Each method returns another stream.

    What a process that joins reads again is at most a block of :meth:`shuffle`, and the file up to
    there if it is compressed.
    """

    open: Callable[[], Cursor]
    """Makes what reads it from its beginning."""
    digests: Callable[[], Mapping[str, str]] = field(default=dict)
    """What files it is made of, and what is in them, in a few words each."""

    def __call__(self) -> Cursor:
        """An iterator that begins with the first sample."""
        return self.open()

    def __iter__(self) -> Cursor:
        return self.open()

    def digests_by_file(self) -> Mapping[str, str]:
        """What all nodes must have alike, compared before the first step."""
        return self.digests()

    def map(self, function: Callable[[Any], Any]) -> SampleStream:
        """What ``function`` makes of each sample. It may draw random numbers, and read what changes
        while the job runs, where no :meth:`prefetch`, :meth:`shuffle` or :meth:`windows` stands
        behind it. To see that nothing changes one in 31 of what it has made above those is made
        again, and more of the first ones."""
        if not callable(function):
            raise UsageError(f"map() takes a function, not a {type(function).__name__}")
        return self._with(lambda: Mapped(self.open(), function))

    def shuffle(self, size: int, seed: int = 0) -> SampleStream:
        """Files in another order in each epoch, and the samples of each block of ``size`` of them
        in another order: a function of ``seed`` and position. A block is kept in memory."""
        at_least_one("shuffle()", size)
        return self._with(lambda: Shuffled(self.open(), size, seed))

    def windows(self, length: int) -> SampleStream:
        """Of rows of tokens: samples of ``length`` tokens each, from one row after another. What is
        left at the end of all, less than a window, is not used in that epoch."""
        at_least_one("windows()", length)
        return self._with(lambda: Windowed(self.open(), length))

    def prefetch(self, items: int = 64, bytes: int = 256 << 20) -> SampleStream:
        """Read ahead on a thread: at most so many samples, and about so many bytes of them.

        What is above it runs on that thread, so it must draw no random numbers, read nothing that
        changes while the job runs, and make NumPy's arrays rather than MLX's. An error there is
        raised at the sample that it belongs to.
        """
        at_least_one("prefetch()", items)
        at_least_one("prefetch(bytes=)", bytes)
        return self._with(lambda: Prefetched(self.open(), items, bytes))

    def _with(self, open: Callable[[], Cursor]) -> SampleStream:
        return SampleStream(open, self.digests)


def at_least_one(what: str, value: int) -> None:
    """Raises UsageError: ``what`` was given something else."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{what} takes a whole number of at least 1, not {value!r}")
