"""Streams of Hugging Face's ``datasets``. That package is not imported here: what is asked of a
data set is that it can be iterated, with ``state_dict``, ``load_state_dict`` and ``set_epoch``."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from elasticd.data.cursors import State
from elasticd.data.stream import SampleStream
from elasticd.errors import UsageError

_NEEDED = ("__iter__", "state_dict", "load_state_dict", "set_epoch")
_LOSES_ROWS = "BufferShuffledExamplesIterable"


def from_datasets(dataset: Any) -> SampleStream:
    """The rows of an ``IterableDataset``, whole on each rank: the job's ranks share out positions.

    A ``Dataset`` is better handed to ``elasticd.Run(data=…)`` as it is: all of it is shuffled.

    Raises:
        UsageError: its rows would be others on another number of ranks, or after a restart.
    """
    if hasattr(dataset, "to_iterable_dataset"):
        dataset = dataset.to_iterable_dataset()
    if missing := [name for name in _NEEDED if not hasattr(dataset, name)]:
        raise UsageError(
            f"from_datasets() takes an IterableDataset of datasets; a {type(dataset).__name__} has"
            f" no {missing[0]}"
        )
    if getattr(dataset, "_distributed", None) is not None:
        raise UsageError(
            "this IterableDataset is split by rank: hand in the whole one, the job's ranks share it"
        )
    if any(_buffers(getattr(dataset, "_ex_iterable", None))):
        raise UsageError(
            "shuffle(buffer_size=) of datasets loses and repeats rows when it goes on from a state:"
            " leave it out, or set it to 1 (which shuffles shards), and use"
            " from_datasets(…).shuffle(size)"
        )
    return SampleStream(lambda: HubCursor(dataset))


def _buffers(examples: Any) -> Iterator[bool]:
    """Whether any of those that it reads from keeps rows in a buffer to draw from."""
    if examples is None:
        return
    yield type(examples).__name__ == _LOSES_ROWS and getattr(examples, "buffer_size", 2) > 1
    below = getattr(examples, "ex_iterables", None) or [getattr(examples, "ex_iterable", None)]
    for each in below:
        yield from _buffers(each)


class HubCursor:
    """Reads one, with a copy of its own: a data set keeps its place in itself."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = copy.deepcopy(dataset)
        self._rows: Iterator[Any] | None = None
        self._loaded: Any = None
        """Where it begins; None: at the first row."""
        self._epoch, self._read = 0, 0

    def __iter__(self) -> HubCursor:
        return self

    def __next__(self) -> Any:
        if self._rows is None:
            self._rows = iter(self._dataset)
        row = next(self._rows)
        self._read += 1
        return row

    def state(self) -> State:
        rows = self._loaded if self._rows is None else self._dataset.state_dict()
        return {"rows": rows, "epoch": self._epoch, "read": self._read}

    def load_state(self, state: State) -> None:
        self.set_epoch(state["epoch"])  # theirs has it, and doesn't go there
        self._rows, self._loaded, self._read = None, state["rows"], state["read"]
        if self._loaded is not None:
            self._dataset.load_state_dict(copy.deepcopy(self._loaded))

    def set_epoch(self, epoch: int, seed: int | None = None) -> None:
        self._epoch = epoch
        self._dataset.set_epoch(epoch)

    def name(self) -> str:
        return f"row {self._read} of epoch {self._epoch}"
