"""For scripts with a group of their own: whether the ranks still have the same weights.

Data parallel training gives each rank the same update. Where one has another start, misses a sum or
computes other bits, the ranks drift apart, and no loss shows it.
"""

from __future__ import annotations

import struct
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from blake3 import blake3
from mlx.utils import tree_flatten

from elasticd.counting import counted
from elasticd.errors import OperationError, UsageError

_WORDS = 2
"""Of 32 bits, which are told of a parameter: its digest's first."""
_calls: dict[int, tuple[weakref.ref[nn.Module], int]] = {}
"""How often each model was shown, by its id."""

Words = list[int]
Gather = Callable[[Words], Sequence[Words]]
"""What each rank has said, by rank; each says as many words."""


@dataclass(frozen=True, slots=True)
class WeightRow:
    """One parameter: what it is, and digests of that and of its content."""

    name: str
    form: str
    digest: bytes

    @property
    def shown(self) -> str:
        return f"{self.name} ({self.form})"


def check_weights(
    model: nn.Module, *, every: int = 1, group: mx.distributed.Group | None = None
) -> bool:
    """Compare the parameters of all ranks, bit by bit; whether this was done now.

    Call it once a step on every rank, behind the update.

    Args:
        every: at each so many calls with this model; at the others it does nothing.
        group: whose ranks; default: that of ``mx.distributed.init()``. One rank is the same.

    Raises:
        OperationError: they differ; on every rank. The first parameter by name that does is named,
            and on which ranks it is another than on most.
        UsageError: ``every`` is no whole number from 1.
    """
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise UsageError(f"check_weights: every= must be a whole number from 1, not {every!r}")
    if _shown(model) % every:
        return False
    group = group or mx.distributed.init()
    if group.size() == 1:
        return False
    if wrong := difference(rows_of(model), _gathering(group)):
        raise OperationError(
            f"check_weights: {wrong}. Let every rank begin with the same weights (the same seed, or"
            " rank 0's), and update with the same averaged gradients"
        )
    return True


def rows_of(model: nn.Module) -> list[WeightRow]:
    """A model's parameters by name, frozen ones too."""
    module: Any = model
    arrays: Any = tree_flatten(module.parameters())
    mx.eval([array for _, array in arrays])
    return [_row(name, array) for name, array in sorted(arrays, key=lambda pair: pair[0].encode())]


def difference(rows: Sequence[WeightRow], gather: Gather) -> str:
    """What ranks differ in; empty: nothing. All come to the same kind of answer, as it rests on
    what all were told."""
    forms, digests = [_hash(row.shown.encode()) for row in rows], [row.digest for row in rows]
    both = _hash(b"".join(forms)), _hash(b"".join(digests))
    told = gather([len(rows), *_words(both[0]), *_words(both[1])])
    if len(set(map(tuple, told))) == 1:
        return ""
    if len({tuple(words[: 1 + _WORDS]) for words in told}) > 1:
        most = max(words[0] for words in told)
        padded = [*forms, *[bytes(4 * _WORDS)] * (most - len(rows))]
        at, odd, _ = _first(gather([word for form in padded for word in _words(form)]))
        here = rows[at].shown if at < len(rows) else "nothing more"
        return f"the models are not the same: {odd} by another parameter; this rank has {here}"
    at, odd, others = _first(gather([word for digest in digests for word in _words(digest)]))
    said = f"{rows[at].shown} is not the same: {odd}"
    more = counted(others, "parameter behind it differs", "parameters behind it differ")
    return f"{said}; {more}, too" if others else said


def _first(told: Sequence[Words]) -> tuple[int, str, int]:
    """The first parameter that differs, by which ranks, and how many behind it do."""
    places = range(0, len(told[0]), _WORDS)
    by_place = [[tuple(words[at : at + _WORDS]) for words in told] for at in places]
    differing = [at for at, seen in enumerate(by_place) if len(set(seen)) > 1]
    first = by_place[differing[0]]
    # Of two that are as frequent the one that the lowest rank has.
    usual, _ = Counter(first).most_common(1)[0]
    odd = [str(rank) for rank, seen in enumerate(first) if seen != usual]
    most = [str(rank) for rank, seen in enumerate(first) if seen == usual]
    ranks = f"{'rank' if len(odd) == 1 else 'ranks'} {', '.join(odd)} differ"
    ranks += "s" if len(odd) == 1 else ""
    return differing[0], f"{ranks} from {', '.join(most)}", len(differing) - 1


def _row(name: str, array: mx.array) -> WeightRow:
    kind = str(array.dtype).rpartition(".")[2]
    form = f"{kind}, {'x'.join(map(str, array.shape))}" if array.shape else kind
    with mx.stream(mx.cpu):
        flat = mx.contiguous(array).reshape(-1).view(mx.uint8)
        content = memoryview(flat) if array.size else b""  # type: ignore[arg-type]
    return WeightRow(name, form, _hash(content))


def _shown(model: nn.Module) -> int:
    """How often it was, this time included."""
    key = id(model)
    known = _calls.get(key)
    count = known[1] + 1 if known is not None and known[0]() is model else 1
    _calls[key] = weakref.ref(model, lambda _: _calls.pop(key, None)), count
    return count


def _hash(content: bytes | memoryview) -> bytes:
    return blake3(content).digest(length=4 * _WORDS)


def _words(digest: bytes) -> Words:
    return list(struct.unpack(f"<{_WORDS}I", digest))


def _gathering(group: mx.distributed.Group) -> Gather:
    def gather(words: Words) -> Sequence[Words]:
        own = mx.array(words, mx.uint32)[None]
        found: Any = mx.distributed.all_gather(own, group=group, stream=mx.cpu).tolist()
        return list(found)

    return gather
