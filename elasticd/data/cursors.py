"""What a stream is read with: iterators that say where they are, and can be put there.

Each is wrapped around another. ``state()`` is where the next sample comes from, in plain values.
"""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elasticd.data.again import MadeAgain
from elasticd.errors import UsageError
from elasticd.train.steps import randomness
from elasticd.train.steps.generators import is_generator
from elasticd.train.steps.reach import reached
from elasticd.train.steps.sampling import Permutation

State = dict[str, Any]


class Cursor(Protocol):
    """Gives samples from some place on."""

    def __iter__(self) -> Cursor: ...

    def __next__(self) -> Any: ...

    def state(self) -> State:
        """Where it is."""

    def load_state(self, state: State) -> None:
        """Go there."""

    def set_epoch(self, epoch: int, seed: int | None = None) -> None:
        """Of a fresh one: how often all was read before. With a ``seed``, files may come in an
        order that is a function of it and of the epoch."""

    def name(self) -> str:
        """Of the sample that was given last: file and line, or what there is."""


class Mapped:
    """What a function makes of each sample. An error says which sample it was."""

    def __init__(self, rows: Cursor, function: Callable[[Any], Any]) -> None:
        self.rows, self._function = rows, function
        self._again: MadeAgain | None = None

    def __iter__(self) -> Mapped:
        return self

    def __next__(self) -> Any:
        row = next(self.rows)
        if self._again is None:
            return applied(self._function, row, self.name)
        name = self.name()
        make = functools.partial(applied, self._function, name=lambda: name)
        return self._again.made(make, row, name)

    def make_again(self, again: MadeAgain) -> None:
        """Some of what is made from now on."""
        self._again = again

    def state(self) -> State:
        return self.rows.state()

    def load_state(self, state: State) -> None:
        self.rows.load_state(state)

    def set_epoch(self, epoch: int, seed: int | None = None) -> None:
        self.rows.set_epoch(epoch, seed)

    def name(self) -> str:
        return self.rows.name()


def applied(function: Callable[[Any], Any], row: Any, name: Callable[[], str]) -> Any:
    """What ``function`` makes of a row. What it raises says of which row."""
    try:
        return function(row)
    except StopIteration as error:
        # It would end the stream, in silence.
        raise RuntimeError(f"the function of a stream raised StopIteration at {name()}") from error
    except Exception as error:
        error.add_note(f"elasticd: at {name()}")
        raise


@contextlib.contextmanager
def undrawn(what: str, cure: str = "", rows: Any = None) -> Iterator[None]:
    """``what`` fetches samples early, or on a thread.

    Args:
        cure: by default a map() moves behind it.
        rows: what is called for them, with generators of its own perhaps.

    Raises:
        UsageError: random numbers are drawn for them.
    """
    inside = reached([rows], is_generator).found
    before = randomness.standing(inside)
    yield
    if randomness.standing(inside) != before:
        raise UsageError(
            f"what stands above {what} draws random numbers, which differ by what else is drawn"
            f" meanwhile: {cure or f'put that map() behind {what}'}"
        )


def make_again(rows: Any, what: str, ahead: int) -> MadeAgain:
    """Some of what the functions make that ``what`` reads through, which holds so many samples. The
    last one that reads ahead counts."""
    again = MadeAgain(what, ahead)
    while isinstance(rows, (Mapped, Shuffled, Windowed)):
        if isinstance(rows, Mapped):
            rows.make_again(again)
        rows = rows.rows
    return again


class Shuffled:
    """The samples in another order: blocks of ``size`` of them, each in an order that is a function
    of the seed, the epoch and the block's number.

    So no more than a block is in memory, and who goes on from a state reads that block alone.
    """

    def __init__(self, rows: Cursor, size: int, seed: int) -> None:
        self.rows, self._size, self._seed = rows, size, seed
        self._again = make_again(rows, "shuffle()", size)
        self._epoch, self._number, self._at = 0, -1, 0
        self._begin: State | None = None
        """Where the block begins that is in hand."""
        self._block: list[tuple[Any, str]] = []
        self._name = "the first sample"
        self._proved = False

    def __iter__(self) -> Shuffled:
        return self

    def __next__(self) -> Any:
        if self._at == len(self._block):
            self._fill(self.rows.state(), self._number + 1)
        sample, self._name = self._block[self._at]
        self._block[self._at] = None, self._name  # it may be large
        self._at += 1
        self._again.taken()
        return sample

    def _fill(self, begin: State, number: int) -> None:
        with contextlib.nullcontext() if self._proved else undrawn("shuffle()"):
            self._read(begin, number)
        self._proved = True

    def _read(self, begin: State, number: int) -> None:
        found = [(row, self.rows.name()) for row in islice(self.rows, self._size)]
        if not found:
            raise StopIteration
        key = randomness.derive(self._seed, "block", self._epoch, number)
        order = Permutation(len(found), key, 0)(np.arange(len(found), dtype=np.uint64))
        self._block = [found[place] for place in order.tolist()]
        self._begin, self._number, self._at = begin, number, 0

    def state(self) -> State:
        begin = self.rows.state() if self._begin is None else self._begin
        place = {"epoch": self._epoch, "block": self._number, "at": self._at}
        return {"rows": begin, **place}

    def load_state(self, state: State) -> None:
        self.rows.load_state(state["rows"])
        self._epoch, number, at = state["epoch"], state["block"], state["at"]
        self._begin, self._block, self._number, self._at = None, [], number, 0
        if number >= 0:
            self._fill(state["rows"], number)
            self._at = at

    def set_epoch(self, epoch: int, seed: int | None = None) -> None:
        self._epoch = epoch
        self.rows.set_epoch(epoch, self._seed if seed is None else seed)

    def name(self) -> str:
        return self._name


class Windowed:
    """Samples of ``length`` tokens: what rows are, one behind the other, cut where one is full.

    Where it is: the row in which the next sample begins, and how many of its tokens are used.
    """

    def __init__(self, rows: Cursor, length: int) -> None:
        self.rows, self._length = rows, length
        self._again = make_again(rows, "windows()", 1)
        self._held: deque[tuple[State, str, NDArray[Any]]] = deque()
        """Rows that aren't used up, and where each came from."""
        self._used = 0
        """Tokens of the first of them."""
        self._name = "the first row"
        self._proved = False

    def __iter__(self) -> Windowed:
        return self

    def __next__(self) -> NDArray[Any]:
        while sum(len(row) for _, _, row in self._held) - self._used < self._length:
            self._read()
        self._name = self._held[0][1]
        parts, missing = [], self._length
        while missing:
            row = self._held[0][2]
            part = row[self._used : self._used + missing]
            parts.append(part)
            missing -= len(part)
            self._used += len(part)
            if self._used == len(row):
                self._held.popleft()
                self._used = 0
        self._again.taken()
        return np.concatenate(parts)

    def _read(self) -> None:
        begin = self.rows.state()
        with contextlib.nullcontext() if self._proved else undrawn("windows()"):
            row = np.asarray(next(self.rows))
        self._proved = True
        if row.ndim != 1:
            raise UsageError(
                f"windows() takes rows of tokens, arrays of one axis; {self.rows.name()} has the"
                f" shape {list(row.shape)}"
            )
        if len(row):
            self._held.append((begin, self.rows.name(), row))

    def state(self) -> State:
        begin = self._held[0][0] if self._held else self.rows.state()
        return {"rows": begin, "used": self._used}

    def load_state(self, state: State) -> None:
        self.rows.load_state(state["rows"])
        self._held.clear()
        self._used = 0
        if state["used"]:
            while not self._held:
                self._read()
            self._used = state["used"]

    def set_epoch(self, epoch: int, seed: int | None = None) -> None:
        self.rows.set_epoch(epoch, seed)

    def name(self) -> str:
        """Of the row in which the sample begins."""
        return self._name
