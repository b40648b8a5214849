"""Samples of a dataset, by position, that threads fetch before they are wanted."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from elasticd.data.again import Rounds
from elasticd.data.ahead import size_bytes
from elasticd.data.cursors import undrawn
from elasticd.data.stream import at_least_one
from elasticd.errors import UsageError
from elasticd.train.steps.contents import digests_by_sample
from elasticd.train.steps.data import digests_of
from elasticd.train.steps.likeness import sample_digest


def prefetched(
    rows: Any, items: int = 64, bytes: int = 256 << 20, threads: int = 1
) -> PrefetchedRows:
    """The same samples, of which those that this rank needs next are fetched on threads meanwhile.

    Args:
        rows: anything with ``len()`` and ``[index]``. It is called on those threads, so it must
            draw no random numbers, read nothing that changes while the job runs, and make NumPy's
            arrays rather than MLX's. An error there is raised at the sample that it belongs to. To
            see that nothing changes one in 31 of what threads have fetched is fetched again where
            it is needed, and more of the first ones.
        items: so many samples at most are held.
        bytes: about so many bytes of them; each thread has one more in hand.
        threads: more than one call ``rows`` at the same time, which it must bear.

    Raises:
        UsageError: it isn't such a dataset, or a number is below one.
    """
    if not hasattr(rows, "__len__") or not hasattr(rows, "__getitem__"):
        raise UsageError(
            f"prefetched() takes a dataset with __len__ and __getitem__, not a"
            f" {type(rows).__name__}; a stream has a method for that: stream.prefetch()"
        )
    at_least_one("prefetched(items=)", items)
    at_least_one("prefetched(bytes=)", bytes)
    at_least_one("prefetched(threads=)", threads)
    return PrefetchedRows(rows, items, bytes, threads)


class PrefetchedRows:
    """For ``elasticd.Run(data=…)``, which says which samples it needs next. Its threads end with
    this object."""

    def __init__(self, rows: Any, items: int, most: int, threads: int) -> None:
        self._rows, self._items, self._threads = rows, items, threads
        self._desk = _Desk(rows, most, alone=threads == 1)
        self._proved = self._begun = False
        self._rounds = Rounds()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        if self._proved:
            return self._taken(index)
        # The first is fetched on the caller's thread, to see that nothing is drawn for it.
        with undrawn("prefetched()", "leave prefetched() out", self._rows):
            sample = self._rows[index]
        size_bytes(sample, *_ARRAYS)
        self._proved = True
        return sample

    def _taken(self, index: int) -> Any:
        found = self._desk.take(index)
        if found is None:
            return self._desk.fetch_here(index)
        if found.error is not None:
            raise found.error
        if self._rounds.due():
            self._compare(index, found.sample)
        return found.sample

    def _compare(self, index: int, ahead: Any) -> None:
        then = sample_digest(ahead)  # first, for the dataset may use its memory again
        if sample_digest(self._desk.fetch_here(index)) != then:
            raise UsageError(
                f"the dataset of prefetched() has given another sample {index} now than when that"
                " was fetched ahead: it reads something that has changed since, such as what the"
                " loop's body changes, or draws random numbers. Threads fetch at no certain time:"
                " leave prefetched() out, or do in collate= or in the loss what changes"
            )

    def will_need(self, indices: Iterable[int]) -> None:
        """What is needed next, in this order. What is held and isn't named any more goes."""
        if not self._begun:
            self._begun = True
            weakref.finalize(self, self._desk.close)
            for number in range(self._threads):
                name = f"elasticd-data-{number}"
                threading.Thread(target=_work, args=(self._desk,), name=name, daemon=True).start()
        self._desk.expect(list(dict.fromkeys(islice(indices, self._items))))

    def name(self, index: int) -> str:
        """What the dataset calls it, if it has names."""
        return str(self._rows.name(index)) if hasattr(self._rows, "name") else ""

    def digests_by_file(self) -> Mapping[str, str]:
        """Of what it is made of; of little in memory, by sample."""
        return digests_of(self._rows) or digests_by_sample(self._rows)


_ARRAYS = ("the dataset of prefetched()", "make NumPy's, and MLX's of them in collate=")


@dataclass(frozen=True, slots=True)
class _Fetched:
    """One sample, or why there is none."""

    sample: Any
    bytes: int
    error: BaseException | None = None


class _Desk:
    """What is wanted, in whose hands it is, and what lies ready. The threads know nothing else."""

    def __init__(self, rows: Any, most: int, *, alone: bool) -> None:
        """``alone``: rows are never called by two threads at once."""
        self._rows, self._most = rows, most
        self._calling = threading.Lock() if alone else contextlib.nullcontext()
        self._wanted: deque[int] = deque()
        self._in_hand: set[int] = set()
        self._ready: dict[int, _Fetched] = {}
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()

    def expect(self, indices: list[int]) -> None:
        with self._changed:
            for gone in self._ready.keys() - set(indices):
                self._drop(gone)
            self._wanted = deque(
                each for each in indices if each not in self._ready and each not in self._in_hand
            )
            self._changed.notify_all()

    def take(self, index: int) -> _Fetched | None:
        """What was fetched; it is waited for if a thread has it in hand."""
        with self._changed:
            self._changed.wait_for(lambda: index not in self._in_hand)
            found = self._drop(index)
            if found is None and index in self._wanted:
                self._wanted.remove(index)
            self._changed.notify_all()
        return found

    def fetch_here(self, index: int) -> Any:
        """On the caller's thread."""
        with self._calling:
            return self._rows[index]

    def _drop(self, index: int) -> _Fetched | None:
        if (found := self._ready.pop(index, None)) is not None:
            self._bytes -= found.bytes
        return found

    def fetch(self) -> bool:
        """Fetch the next, once there is room. False: nobody takes any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._has_work())
            if self._closed:
                return False
            index = self._wanted.popleft()
            self._in_hand.add(index)
        found = self._fetched(index)
        with self._changed:
            self._in_hand.remove(index)
            if not self._closed:
                self._ready[index] = found
                self._bytes += found.bytes
            self._changed.notify_all()
        return True

    def _has_work(self) -> bool:
        return bool(self._wanted) and (not self._ready or self._bytes < self._most)

    def _fetched(self, index: int) -> _Fetched:
        try:
            sample = self.fetch_here(index)
            return _Fetched(sample, size_bytes(sample, *_ARRAYS))
        except BaseException as error:
            return _Fetched(None, 0, error)

    def close(self) -> None:
        """The threads end at their next sample."""
        with self._changed:
            self._closed = True
            self._wanted.clear()
            self._ready.clear()
            self._changed.notify_all()


def _work(desk: _Desk) -> None:
    """A thread. It knows the desk only, so that who reads from that may go."""
    while desk.fetch():
        pass
