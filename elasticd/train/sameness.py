"""For scripts with a group of their own: whether the ranks still have the same weights.

Data parallel training gives each rank the same update. Where one has another start, misses a sum or
computes other bits, the ranks drift apart, and no loss shows it.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from elasticd.counting import counted
from elasticd.errors import OperationError, UsageError
from elasticd.train.agreement import (
    WORDS,
    Gather,
    Words,
    all_differing,
    as_words,
    digest,
    form_of,
    gathering,
    greeted,
    group_of,
    ranks_named,
    ranks_of,
)
from elasticd.train.settling import settled
from elasticd.train.states.summed import is_statistic

_calls: dict[int, tuple[weakref.ref[nn.Module], int]] = {}
"""How often each model was shown, by its id."""


@dataclass(frozen=True, slots=True)
class WeightRow:
    """One parameter: what it is, and digests of that and of its content."""

    shown: str
    digest: bytes


def check_weights(
    model: nn.Module, *, every: int = 1, group: mx.distributed.Group | None = None
) -> bool:
    """Compare the parameters of all ranks, bit by bit; whether this was done now.

    Call it once a step on every rank, behind the update. Running statistics are left out: each
    rank's are of its own samples.

    Args:
        every: at each so many calls with this model; at the others it does nothing.
        group: whose ranks; default: that of ``mx.distributed.init()``. One rank is the same.

    Raises:
        OperationError: they differ; on every rank. The first parameter by name that does is named,
            and on which ranks it is another than on most.
        UsageError: ``every`` is no whole number from 1, ``model`` no module, ``group`` no group;
            or a rank has called another helper instead.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"check_weights: model= must be an mlx.nn.Module, not a {type(model).__name__}"
        )
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise UsageError(f"check_weights: every= must be a whole number from 1, not {every!r}")
    if _shown(model) % every:
        return False
    group = group_of("check_weights", group)
    if group.size() == 1:
        return False
    if wrong := difference(rows_of(model), gathering(group)):
        raise OperationError(
            f"check_weights: {wrong}. Let every rank begin with the same weights (the same seed, or"
            " rank 0's), and update with the same averaged gradients. What forward passes make of a"
            " rank's own samples is left out if it is called running_mean or running_var, or has a"
            " private name (self._queue)"
        )
    return True


def rows_of(model: nn.Module, settle: Callable[[], None] = settled) -> list[WeightRow]:
    """A model's parameters by name, frozen ones too, without running statistics. ``settle``: waits
    for the GPU."""
    module: Any = model
    flat: Any = tree_flatten(module.parameters())
    arrays = [(name, array) for name, array in flat if not is_statistic(name)]
    mx.eval([array for _, array in arrays])
    settle()
    return [_row(name, array) for name, array in sorted(arrays, key=lambda pair: pair[0].encode())]


def difference(rows: Sequence[WeightRow], gather: Gather) -> str:
    """What ranks differ in; empty: nothing. All come to the same kind of answer, as it rests on
    what all were told."""
    forms, digests = [digest(row.shown.encode()) for row in rows], [row.digest for row in rows]
    both = digest(b"".join(forms)), digest(b"".join(digests))
    told = greeted("check_weights", *both, gather)
    if len(set(told)) == 1:
        return ""
    if len({form for form, _ in told}) > 1:
        most = max(words[0] for words in gather([len(rows)]))
        padded = [*forms, *[bytes(4 * WORDS)] * (most - len(rows))]
        at, odd, _ = _first(gather([word for form in padded for word in as_words(form)]))
        here = rows[at].shown if at < len(rows) else "nothing more"
        return f"the models are not the same: {odd} by another parameter; this rank has {here}"
    at, odd, others = _first(gather([word for each in digests for word in as_words(each)]))
    said = f"{rows[at].shown} is not the same: {odd}"
    more = counted(others, "parameter behind it differs", "parameters behind it differ")
    return f"{said}; {more}, too" if others else said


def _first(told: Sequence[Words]) -> tuple[int, str, int]:
    """The first parameter that differs, by which ranks, and how many behind it do."""
    (at, first), *others = all_differing(told)
    # Of two that are as frequent the one that the lowest rank has.
    usual, _ = Counter(first).most_common(1)[0]
    odd = [rank for rank, seen in enumerate(first) if seen != usual]
    most = ", ".join(map(str, ranks_of(first, usual)))
    verb = "differs" if len(odd) == 1 else "differ"
    return at, f"{ranks_named(odd)} {verb} from {most}", len(others)


def _row(name: str, array: mx.array) -> WeightRow:
    with mx.stream(mx.cpu):
        flat = mx.contiguous(array).reshape(-1).view(mx.uint8)
        content = memoryview(flat) if array.size else b""  # type: ignore[arg-type]
    return WeightRow(form_of(name, array), digest(content))


def _shown(model: nn.Module) -> int:
    """How often it was, this time included."""
    key = id(model)
    known = _calls.get(key)
    count = known[1] + 1 if known is not None and known[0]() is model else 1
    _calls[key] = weakref.ref(model, lambda _: _calls.pop(key, None)), count
    return count
