"""Which steps have written how much of a file, in one or two bytes a step.

A row of numbers, in which one stands for what follows: the text of the next step and its length; so
many steps that have written nothing; so many steps of which nothing is known here. Each is written
in groups of seven bits, the lowest first, with the eighth bit set in all but the last. Steps that
write nothing cost nothing, so the row is bounded by the text, however long a job runs. The same
steps and lengths always give the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

MAGIC = struct.pack("<QQ", 2, (1 << 64) - 1)
"""Begins an index of today. An earlier version takes it for a record that fits no file, and begins
the file's part anew."""
BASE = -1
"""The step of what was in the file before the run."""
_TEXT, _NOTHING, _GAP = range(3)
_KINDS = 3
LONGEST = 9
"""Bytes of a number: more would be no number of steps or bytes."""
_MOST_STEPS = 2.0**60

Record = tuple[int, int]
"""A step, and where its text ends."""


class StepIndex:
    """Of one file."""

    def __init__(self) -> None:
        self.code = bytearray()
        self.end = 0
        """Where the last step's text ends."""
        self._runs: list[list[int]] = []

    @classmethod
    def parsed(cls, code: bytes, size: int) -> StepIndex:
        """As far as it makes sense for a file of ``size`` bytes."""
        index = cls()
        kinds, numbers, ends = _decoded(code)
        steps = np.where(kinds == _TEXT, 1, numbers)
        lengths = np.where(kinds == _TEXT, numbers, 0)
        # As floats these don't overflow.
        fits = np.cumsum(lengths, dtype=np.float64) <= size
        twice = np.r_[False, (kinds[1:] == kinds[:-1]) & (kinds[1:] != _TEXT)][: len(kinds)]
        good = (numbers > 0) & fits & ~twice
        good &= np.cumsum(steps, dtype=np.float64) < _MOST_STEPS
        texts = np.cumsum(lengths)
        count = len(good) if good.all() else int(np.argmin(good))
        while count and kinds[count - 1] == _GAP:
            count -= 1
        if not count:
            return index
        index.code[:] = code[: int(ends[count - 1])]
        index.end = int(texts[count - 1])
        last = BASE - 1 + np.cumsum(steps[:count])
        gaps = np.flatnonzero(kinds[:count] == _GAP)
        firsts = np.r_[BASE if kinds[0] != _GAP else [], last[gaps] + 1].astype(np.int64)
        lasts = np.r_[(last[gaps] - steps[gaps])[int(kinds[0] == _GAP) :], last[-1]]
        index._runs = [[int(a), int(b)] for a, b in zip(firsts, lasts, strict=True)]
        return index

    @classmethod
    def of(cls, records: Iterable[Record]) -> StepIndex:
        """Of steps in order."""
        index = cls()
        for step, end in records:
            index.take(step, end - index.end)
        return index

    @property
    def last(self) -> int:
        """The newest step."""
        return self._runs[-1][1] if self._runs else BASE - 1

    @property
    def steps(self) -> int:
        """How many it has."""
        return sum(last - first + 1 for first, last in self._runs)

    def runs(self) -> list[list[int]]:
        """Which steps it has: the first and the last of each run of them."""
        return [list(run) for run in self._runs]

    @property
    def settled(self) -> int:
        """So much of the code stays as it is, whatever follows."""
        at = self._last_at()
        return at if at < len(self.code) and self._number(at)[0] == _NOTHING else len(self.code)

    def records(self) -> Iterator[Record]:
        """Of each step."""
        kinds, numbers, _ = _decoded(bytes(self.code))
        step, end = BASE - 1, 0
        for kind, number in zip(kinds.tolist(), numbers.tolist(), strict=True):
            if kind == _GAP:
                step += number
            for _ in range(number if kind == _NOTHING else kind == _TEXT):
                step, end = step + 1, end + (number if kind == _TEXT else 0)
                yield step, end

    # Changes.

    def addition(self, step: int, length: int) -> tuple[int, bytes]:
        """What the code is from which byte on, with ``length`` bytes of a later step."""
        missing = step - self.last - 1
        if missing:
            return len(self.code), _coded(_GAP, missing) + _entry(length)
        at = self._last_at()
        if not length and at < len(self.code) and self._number(at)[0] == _NOTHING:
            return at, _coded(_NOTHING, self._number(at)[1] + 1)
        return len(self.code), _entry(length)

    def take(self, step: int, length: int) -> None:
        """``step``, which is later than all that are here, has written so many bytes."""
        at, code = self.addition(step, length)
        self.code[at:] = code
        self.end += length
        if self._runs and step == self.last + 1:
            self._runs[-1][1] = step
        else:
            self._runs.append([step, step])

    def cut(self, step: int) -> None:
        """Forget later steps."""
        while self.last > step:
            at = self._last_at()
            kind, number = self._number(at)
            gone = 1 if kind == _TEXT else min(number, self.last - step)
            left = _coded(_NOTHING, number - gone) if kind == _NOTHING and number > gone else b""
            self.code[at:] = left
            self.end -= number if kind == _TEXT else 0
            run = self._runs[-1]
            run[1] -= gone
            if run[1] < run[0]:
                self._runs.pop()
                self._drop_gap()

    def _drop_gap(self) -> None:
        at = self._last_at()
        if at < len(self.code) and self._number(at)[0] == _GAP:
            del self.code[at:]

    def _last_at(self) -> int:
        """Where the last number begins."""
        at = len(self.code) - 1
        while at > 0 and self.code[at - 1] & 0x80:
            at -= 1
        return max(at, 0)

    def _number(self, at: int) -> tuple[int, int]:
        """The kind and the number there."""
        value = shift = 0
        while True:
            value |= (self.code[at] & 0x7F) << shift
            if not self.code[at] & 0x80:
                return value % _KINDS, value // _KINDS
            at, shift = at + 1, shift + 7


def merged(files: Sequence[tuple[Iterable[Record], bytes]]) -> tuple[list[Record], bytes]:
    """One file with every step that any of them has, as the first that has it."""
    texts: dict[int, bytes] = {}
    for records, text in files:
        start = 0
        for step, end in records:
            texts.setdefault(step, text[start:end])
            start = end
    made, end = [], 0
    for step in sorted(texts):
        end += len(texts[step])
        made.append((step, end))
    return made, b"".join(texts[step] for step in sorted(texts))


def _entry(length: int) -> bytes:
    return _coded(_TEXT, length) if length else _coded(_NOTHING, 1)


def _coded(kind: int, number: int) -> bytes:
    value, code = number * _KINDS + kind, bytearray()
    while value > 0x7F:
        code.append(value & 0x7F | 0x80)
        value >>= 7
    code.append(value)
    return bytes(code)


def _decoded(code: bytes) -> tuple[Any, Any, Any]:
    """Kinds, numbers, and where each one's bytes end, up to the first that is too long."""
    data = np.frombuffer(code, np.uint8)
    ends = np.flatnonzero(data < 0x80) + 1
    starts = np.r_[0, ends[:-1]].astype(np.int64)[: len(ends)]
    too_long = np.flatnonzero(ends - starts > LONGEST)
    if len(too_long):
        ends, starts = ends[: too_long[0]], starts[: too_long[0]]
    if not len(ends):
        none = np.zeros(0, np.int64)
        return none, none, none
    data = data[: ends[-1]].astype(np.int64)
    places = np.arange(len(data)) - np.repeat(starts, ends - starts)
    values = np.add.reduceat((data & 0x7F) << (7 * places), starts)
    return values % _KINDS, values // _KINDS, ends
