"""Samples by position, and grains of them as batches of MLX arrays."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol, cast, runtime_checkable

import mlx.core as mx
import numpy as np

from elasticd.counting import counted
from elasticd.errors import UsageError
from elasticd.settings.rules import one_line
from elasticd.train.steps import randomness
from elasticd.train.steps.contents import digests_by_sample
from elasticd.train.steps.likeness import sample_digest
from elasticd.train.steps.sampling import Batches, ComingGrains, indices
from elasticd.train.steps.unchanged import GivenSamples, is_looked_at

Collate = Callable[[list[Any]], Any]
_NAME_LETTERS = 300


class Source(Protocol):
    """Where samples come from."""

    def samples(self, step: int, grain: int) -> list[Any]:
        """The samples of a grain, in order."""

    def positions(self, step: int, grain: int) -> range:
        """Of the samples of a grain, counted over all steps."""

    def at(self, step: int, position: int) -> Any:
        """The sample at a position of ``step``."""

    def cut(self, batches: Batches) -> None:
        """From now on global batches are cut into other grains."""

    def describe(self) -> str:
        """What every member must have alike, in a few words."""

    def epoch(self, step: int) -> int:
        """How often all samples were given before the first one of ``step``."""

    def name(self, step: int, position: int) -> str:
        """What the data calls the sample at a position of ``step``, file and line for example;
        empty if it has no names."""

    def digests(self) -> Mapping[str, str]:
        """What is in its files, by name, where the data can say that; or in its samples."""

    def news(self) -> list[str]:
        """What is to be said of it since, each sentence once."""


@runtime_checkable
class Foretold(Protocol):
    """A dataset that is told what is needed next, as that of :func:`elasticd.data.prefetched`."""

    def will_need(self, indices: Iterable[int]) -> None:
        """In this order, without an end as a rule. It may be wrong, when the world changes."""


_KEEPS = (
    "data= draws random numbers when it is first asked for a sample, and keeps what it made. What"
    " is drawn goes by where in the job a sample is used, so each rank would keep another one. Make"
    " all samples in __init__, or draw from np.random.default_rng(index); or keep nothing that is"
    " drawn (functools.lru_cache does)"
)

_IN_PLACE = (
    "data= changes a sample where it keeps it, or gives the same array for each: the first one"
    " became another when data= was asked again, and each rank asks for others. Return a new"
    " array, as in x / 255, or change a copy, and not what is kept (x /= 255)"
)


class IndexedSource:
    """A dataset with ``__len__`` and ``__getitem__``, visited in one permutation an epoch."""

    def __init__(self, dataset: Any, batches: Batches, seed: int) -> None:
        self._dataset, self._batches, self._seed = dataset, batches, seed
        self._grains = ComingGrains()
        self._length = self._told = len(dataset)
        if self._length < 1:
            raise UsageError("data= is empty")

    def samples(self, step: int, grain: int) -> list[Any]:
        if isinstance(self._dataset, Foretold):
            self._dataset.will_need(self._coming(step, grain))
        return self._fetch(self.positions(step, grain))

    def positions(self, step: int, grain: int) -> range:
        return self._batches.positions(step, grain)

    def _coming(self, step: int, grain: int) -> Iterator[int]:
        """The indices of what this rank is likely to need, from this grain on."""
        for each in chain([(step, grain)], self._grains.after(step, grain)):
            yield from indices(self._batches.positions(*each), self._length, self._seed)

    def at(self, step: int, position: int) -> Any:
        return self._fetch(range(position, position + 1))[0]

    def prove_redrawn(self) -> None:
        """Behind the first grain, by which all is made that is made once: fetch a sample, and twice
        more if anything was drawn for it and the second time nothing.

        Raises:
            UsageError: it was kept. Which it is goes by the position at which a rank first asks for
                it, and each rank keeps another. Unless the dataset seeds what it draws from.
        """
        at = self._batches.positions(1, 0).stop
        if at + 1 >= self._length:
            return  # nearly all were asked for
        fresh, drawn = self._standing_behind(at), self._standing_behind(at, at)
        if fresh == drawn or self._standing_behind(at, at) != fresh:
            return
        # Is as much drawn for another from the same seed? Else the dataset seeds by itself.
        if self._standing_behind(at, at + 1) == drawn:
            raise UsageError(_KEEPS)

    def prove_unchanged(self) -> None:
        """Fetch the first sample, another one, and the first one again.

        Raises:
            UsageError: it has become another by that: what a sample is goes by how often, and in
                which order, this rank has asked for samples.
        """
        first = self._fetch(range(1))[0]
        before = sample_digest(first)
        for at in (1, 0):
            self._fetch(range(at, at + 1))
            if sample_digest(first) != before:
                raise UsageError(_IN_PLACE)

    def _standing_behind(self, seeded: int, *positions: int) -> str:
        """Where all generators stand that were ``seeded`` for a position, behind the samples of
        ``positions``."""
        randomness.seed_sample(self._seed, seeded)
        for at in positions:
            for index in indices(range(at, at + 1), self._length, self._seed):
                self._dataset[index]
        return randomness.standing()

    def _fetch(self, positions: range) -> list[Any]:
        samples = []
        for at, i in zip(positions, indices(positions, self._length, self._seed), strict=True):
            randomness.seed_sample(self._seed, at)
            samples.append(self._dataset[i])
        return samples

    def cut(self, batches: Batches) -> None:
        self._batches, self._grains = batches, ComingGrains()

    def describe(self) -> str:
        return f"{self._length} samples"

    def epoch(self, step: int) -> int:
        return self._batches.positions(step, 0).start // self._length

    def name(self, step: int, position: int) -> str:
        if not hasattr(self._dataset, "name"):
            return ""
        (index,) = indices(range(position, position + 1), self._length, self._seed)
        return _said(lambda: self._dataset.name(index))

    def digests(self) -> Mapping[str, str]:
        return digests_of(self._dataset) or digests_by_sample(self._dataset)

    def news(self) -> list[str]:
        if len(self._dataset) <= self._told:
            return []
        self._told = sys.maxsize  # once
        now = counted(len(self._dataset), "sample")
        return [
            f"data= has {now} by now, and had {self._length} at Run(…), by which the order of all"
            " epochs is made: what came later is never used"
        ]

    def shortage(self) -> str:
        """What to say, in a sentence, if it has fewer samples than a step takes; else empty."""
        size = self._batches.global_size
        if self._length >= size:
            return ""
        return (
            f"data= has {counted(self._length, 'sample')}, and a step takes {size} ([batch]"
            " global): some are in it several times"
        )


_FRESH = (
    "each call must return a fresh iterator that begins with the same samples, on every rank. "
    "Open or rewind what it reads inside of it (`def stream(): yield from open_dataset()`), and "
    "draw random numbers from Python's, NumPy's and MLX's global generators, which are seeded alike"
)
_STREAM_IN_PLACE = (
    " of its first call where that is kept: its second call made another of it. If a function keeps"
    " what it returns (functools.lru_cache does), change a copy, as in x / 255, and not x /= 255"
)


class StreamSource:
    """A callable that returns a fresh iterator, the same on every rank, advanced by position.

    The samples of the step in hand are kept, since a grain may be computed twice or later than one
    behind it. A stream that ends begins anew.
    """

    def __init__(self, factory: Callable[[], Iterator[Any]], batches: Batches, seed: int) -> None:
        self._factory, self._batches, self._seed = factory, batches, seed
        self._position = 0
        self._ends: list[int] = []
        """Positions at which it ended and began anew."""
        self._begin()
        self._kept: dict[int, Any] = {}
        self._names: dict[int, str] = {}
        """Of those that are kept, if the iterator has names."""

    def samples(self, step: int, grain: int) -> list[Any]:
        return self._fetch(step, self.positions(step, grain))

    def positions(self, step: int, grain: int) -> range:
        return self._batches.positions(step, grain)

    def at(self, step: int, position: int) -> Any:
        return self._fetch(step, range(position, position + 1))[0]

    def _fetch(self, step: int, positions: range) -> list[Any]:
        first = self._batches.positions(step, 0).start
        self._kept = {at: sample for at, sample in self._kept.items() if at >= first}
        self._names = {at: name for at, name in self._names.items() if at >= first}
        if any(at < self._position and at not in self._kept for at in positions):
            self._restart()
        self._advance(positions.stop, keep_from=first)
        return [self._kept[at] for at in positions]

    def cut(self, batches: Batches) -> None:
        self._batches = batches

    def describe(self) -> str:
        return "a stream"

    def epoch(self, step: int) -> int:
        first = self._batches.positions(step, 0).start
        with randomness.undisturbed():
            self._advance(first + 1, keep_from=first)
        return sum(end <= first for end in self._ends)

    def name(self, step: int, position: int) -> str:
        self._fetch(step, range(position, position + 1))
        return self._names.get(position, "")

    def digests(self) -> Mapping[str, str]:
        return digests_of(self._factory)

    def news(self) -> list[str]:
        return []

    @property
    def has_state(self) -> bool:
        """Whether the iterator can say where it is.

        Raises:
            UsageError: it has the names for that, and they are no methods.
        """
        both = [getattr(self._iterator, name, None) for name in ("state", "load_state")]
        if None in both:
            return False
        for name, found in zip(("state()", "load_state(state)"), both, strict=True):
            if not callable(found):
                raise UsageError(
                    f"data= is a stream, and {name} of its iterator is a {type(found).__name__}:"
                    " make it a method. Is it a property?"
                )
        return True

    def state(self, step: int) -> dict[str, Any]:
        """Where the stream is after ``step``; the same on every rank."""
        end = step * self._batches.global_size
        if self._position > end:
            self._restart()
        self._advance(end, keep_from=end)
        iterator: Any = self._iterator
        return {"position": self._position, "state": iterator.state(), "ends": list(self._ends)}

    def load_state(self, saved: dict[str, Any]) -> None:
        """Go to where :meth:`state` was taken."""
        self._kept, self._names = {}, {}
        self._ends = list(saved.get("ends", []))
        # As for the iterator that has come to there: it may have drawn when it was made.
        randomness.seed_sample(self._seed, self._ends[-1] if self._ends else 0)
        self._iterator, self._position = self._of_epoch(), saved["position"]
        self._iterator.load_state(saved["state"])
        self._fresh = False

    def prove_fresh(self) -> None:
        """Call the factory once more, and see that it begins with the same samples; what comes
        later is read from its second iterator.

        Raises:
            UsageError: it doesn't; the stream of a rank that joins, or goes back, would be another.
        """
        seen, before = self.samples(1, 0), self._iterator
        first = [sample_digest(sample) for sample in seen]
        self._restart()
        if self._iterator is before:
            raise UsageError(f"data= returned the same iterator at its second call: {_FRESH}")
        del before
        try:
            again = self.samples(1, 0)
        except UsageError:
            raise UsageError(f"data= is a stream; its second call gave nothing: {_FRESH}") from None
        for at, (digest, one, other) in enumerate(zip(first, seen, again, strict=True)):
            if digest == sample_digest(other):
                continue
            if digest != sample_digest(one):
                raise UsageError(f"data= is a stream that changes sample {at}{_STREAM_IN_PLACE}")
            what = f"sample {at} of its second call is another than of its first"
            raise UsageError(f"data= is a stream; {what}: {_FRESH}")

    def _restart(self) -> None:
        self._position, self._kept, self._names, self._ends = 0, {}, {}, []
        self._begin()

    def _begin(self) -> None:
        """A fresh iterator, which gives what the stream has at the present position."""
        randomness.seed_sample(self._seed, self._position)
        self._iterator, self._fresh = self._of_epoch(), True

    def _of_epoch(self) -> Any:
        """A fresh iterator, which is told how often the stream has ended."""
        iterator = self._made()
        if hasattr(iterator, "set_epoch"):
            iterator.set_epoch(len(self._ends))
        return iterator

    def _made(self) -> Any:
        made = self._factory()
        try:
            return iter(made)
        except TypeError:
            raise UsageError(
                f"data= is a function that returned a {type(made).__name__}; it must return a fresh"
                " iterator over the samples"
            ) from None

    def _advance(self, end: int, keep_from: int) -> None:
        while self._position < end:
            randomness.seed_sample(self._seed, self._position)
            try:
                sample = next(self._iterator)
            except StopIteration:
                if self._fresh:
                    raise UsageError("the stream given as data= is empty") from None
                self._ends.append(self._position)
                self._begin()
                continue
            self._fresh = False
            if self._position >= keep_from:
                self._kept[self._position] = sample
                if hasattr(self._iterator, "name"):
                    self._names[self._position] = _said(self._iterator.name)
            self._position += 1


def digests_of(data: Any) -> Mapping[str, str]:
    """What is in the files that data is made of, if it can say so."""
    return data.digests_by_file() if hasattr(data, "digests_by_file") else {}


def _said(name: Callable[[], Any]) -> str:
    """A name, if it is one: data of people's own may call something else so."""
    try:
        found = name()
    except Exception:
        return ""
    return one_line(found)[:_NAME_LETTERS] if isinstance(found, str) else ""


def batch_of(source: Source, collate: Collate, seed: int, step: int, grain: int) -> tuple[Any, int]:
    """A grain's batch, and of how many samples it is: the same wherever and whenever it is made.

    Raises:
        UsageError: there is none, or ``collate`` changes what the dataset keeps.
    """
    samples = source.samples(step, grain)
    looks = collate is not stack and is_looked_at(step, grain)
    given = GivenSamples(samples) if looks else None
    randomness.seed_batch(seed, step, grain)
    batch = collate(samples)
    if batch is None:
        raise UsageError("collate= returned None; it must return the batch that it made")
    if given is not None:
        changed = given.changed(lambda: source.samples(step, grain))
        if changed is not None:
            at = source.positions(step, grain)[changed]
            name = source.name(step, at)
            raise UsageError(
                f"collate= changes the sample at position {at} of the data{name and f', {name},'}"
                " where that is kept: when it is used again it is another one, on this rank alone."
                " Copy it before it is changed, as in x = np.array(sample)"
            )
    return batch, len(samples)


def source_of(data: Any, batches: Batches, seed: int) -> IndexedSource | StreamSource:
    """What ``Run(data=)`` was given, by position.

    Raises:
        UsageError: it is neither a dataset nor a callable, or it has columns instead of samples.
    """
    if _are_columns(data, batches.global_size):
        raise UsageError(
            f"data= is a {type(data).__name__} of columns; it needs samples: give a list of them,"
            " as in list(zip(x, y)), or an object with __len__ and __getitem__(index)"
        )
    if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        return IndexedSource(data, batches, seed)
    if callable(data):
        _check_no_arguments(data)
        return StreamSource(cast("Callable[[], Iterator[Any]]", data), batches, seed)
    raise UsageError(
        "data= needs __len__ and __getitem__, or to be a function that returns a fresh iterator; "
        f"it is a {type(data).__name__}"
    )


def _check_no_arguments(data: Callable[..., Any]) -> None:
    try:
        inspect.signature(data).bind()
    except ValueError:
        return  # of what is not Python's own nobody knows
    except TypeError as error:
        raise UsageError(
            f"data= is a function that is called without arguments, and has this: {error}. Give"
            " one that needs none, as in lambda: stream(path)"
        ) from None


def _are_columns(data: Any, batch: int) -> bool:
    """Whether these are no samples: a dict by name, or (x, y) with arrays that are as long as one
    another and don't stack; or of one shape, too few for a ``batch`` and each with rows for it."""
    if isinstance(data, Mapping):
        return 0 not in data
    if not isinstance(data, tuple):
        return False
    shapes: set[tuple[int, ...]] = {tuple(getattr(column, "shape", ())) for column in data}
    if () in shapes or len({shape[:1] for shape in shapes}) != 1:
        return False
    rows, *more = next(iter(shapes))
    return len(shapes) > 1 or (bool(more) and len(data) < batch <= rows)


def stack(samples: Sequence[Any]) -> Any:
    """Stack samples (arrays, numbers, tuples or dicts of them) along a new first axis.

    Raises:
        UsageError: a sample holds something else, or the samples don't fit one another.
    """
    first = samples[0]
    try:
        if isinstance(first, dict):
            return {key: stack([sample[key] for sample in samples]) for key in first}
        if isinstance(first, tuple):
            columns = [stack(column) for column in zip(*samples, strict=True)]
            return type(first)(*columns) if hasattr(first, "_fields") else tuple(columns)
        if isinstance(first, mx.array):
            return mx.stack(list(samples))
        if isinstance(first, (bool, int, float)):
            return mx.array(list(samples))
        if isinstance(first, (np.ndarray, np.generic, list)):
            return mx.array(np.stack([np.asarray(sample) for sample in samples]))
    except (ValueError, KeyError, TypeError) as error:
        cure = (
            "A list is taken for one array: make a sample of several parts a tuple"
            if isinstance(first, list)
            else "If each is a whole batch, give their rows: batches are made of them here"
        )
        raise UsageError(
            f"samples of one batch don't stack: {error}. Make them alike, or give collate=. {cure}"
        ) from error
    raise UsageError(f"samples hold a {type(first).__name__}, which can't be stacked; see collate=")
