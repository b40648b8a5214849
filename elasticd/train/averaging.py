"""For scripts with a group of their own: gradients summed over its ranks.

They are evaluated first, and summed on the CPU: a GPU that waits for a late rank is ended by its
watchdog. Small ones travel together. Each call begins with one message of eight bytes for what the
gradients are, so that unlike ones are told of.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

import mlx.core as mx
from mlx.utils import tree_flatten

from elasticd.errors import UsageError
from elasticd.train.agreement import (
    Gather,
    digest,
    form_of,
    gathering,
    greeted,
    group_of,
    heard,
    unlike,
)
from elasticd.train.settling import settled
from elasticd.train.states.trees import rebuilt

BUCKET_BYTES = 32 << 20
_DOUBLE = struct.Struct("<d")


class Adding(Protocol):
    """Who sums together."""

    @property
    def gather(self) -> Gather: ...

    def add(self, vector: mx.array) -> mx.array:
        """The sum of all ranks' vectors, which are of one length and dtype."""


@dataclass(frozen=True)
class _Group:
    """Implements :class:`Adding` with a group of MLX's."""

    group: mx.distributed.Group

    @property
    def gather(self) -> Gather:
        return gathering(self.group)

    def add(self, vector: mx.array) -> mx.array:
        return mx.distributed.all_sum(vector, group=self.group, stream=mx.cpu)


def average_gradients(
    grads: Any, *, weight: float | mx.array = 1.0, group: mx.distributed.Group | None = None
) -> Any:
    """The mean of the ranks' ``grads``, in their tree and dtypes; as they are on one rank.

    Args:
        grads: a tree of arrays, the same on every rank but for the values.
        weight: what this rank's count for, the samples or tokens that they are the mean of, say.
            The result is the mean over all of these. Every rank gets zeros where all weights are 0.
        group: whose ranks; default: that of ``mx.distributed.init()``.

    Raises:
        UsageError: a weight is negative or not finite, or a rank has other names, shapes or
            dtypes: on every rank. Or this one's aren't floats.
    """
    group = group_of("average_gradients", group)
    with heard(group):
        share, flat = _weight(weight), _floats("average_gradients", grads)
    if group.size() == 1:
        _check_weights([share])
        return grads
    return averaged(grads, flat, share, _Group(group))


def all_reduce_grads(grads: Any, *, group: mx.distributed.Group | None = None) -> Any:
    """The sum of the ranks' ``grads``, in their tree and dtypes; as they are on one rank.

    Raises:
        UsageError: a rank has other names, shapes or dtypes: on every rank. Or one isn't an array.
    """
    group = group_of("all_reduce_grads", group)
    with heard(group):
        flat = _flat("all_reduce_grads", grads)
    return grads if group.size() == 1 else added(grads, flat, _Group(group))


def averaged(grads: Any, flat: Mapping[str, mx.array], weight: float, ranks: Adding) -> Any:
    """:func:`average_gradients` of ``grads``, whose arrays are ``flat`` by name."""
    weights = _agreed("average_gradients", flat, weight, ranks.gather)
    _check_weights(weights)
    total = math.fsum(weights)
    return _summed(grads, flat, weight / total if total else 0.0, ranks)


def added(grads: Any, flat: Mapping[str, mx.array], ranks: Adding) -> Any:
    """:func:`all_reduce_grads` of ``grads``, whose arrays are ``flat`` by name."""
    _agreed("all_reduce_grads", flat, 1.0, ranks.gather)
    return _summed(grads, flat, None, ranks)


def _weight(weight: Any) -> float:
    try:
        return float(weight.item() if isinstance(weight, mx.array) else weight)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise UsageError(
            "average_gradients: weight= must be a finite number from 0, not a"
            f" {type(weight).__name__}{getattr(weight, 'shape', '')}"
        ) from None


def _check_weights(weights: Sequence[float]) -> None:
    for rank, weight in enumerate(weights):
        if not 0 <= weight < math.inf:
            whose = f" (rank {rank}'s)" if len(weights) > 1 else ""
            raise UsageError(
                f"average_gradients: weight= must be a finite number from 0, not {weight}{whose}"
            )


def _flat(helper: str, grads: Any, settle: Callable[[], None] = settled) -> dict[str, mx.array]:
    """The arrays of a tree by name, evaluated. ``settle``: waits for the GPU.

    Raises:
        UsageError: something else is in it.
        RuntimeError: the GPU has failed: nothing has left this process.
    """
    pairs: list[tuple[str, Any]] = tree_flatten(grads)  # type: ignore[assignment]
    for name, leaf in pairs:
        if not isinstance(leaf, mx.array):
            what = f"the gradient of {name}" if name else "grads"
            raise UsageError(
                f"{helper}: {what} must be an array, not a {type(leaf).__name__}; what has no"
                " gradient is left out, on every rank, or is zeros"
            )
    mx.eval([array for _, array in pairs])
    settle()
    return dict(pairs)


def _floats(helper: str, grads: Any, settle: Callable[[], None] = settled) -> dict[str, mx.array]:
    """The same, of those that have means."""
    flat = _flat(helper, grads, settle)
    for name, array in flat.items():
        if not mx.issubdtype(array.dtype, mx.inexact):
            raise UsageError(
                f"{helper}: {form_of(name, array)} can't have a mean of its dtype: give it as"
                " mx.float32, or add it up with all_reduce_grads"
            )
    return flat


def _agreed(
    helper: str, flat: Mapping[str, mx.array], weight: float, gather: Gather
) -> list[float]:
    """All ranks' weights, once they are known to sum the same."""
    forms = sorted(form_of(name, array) for name, array in flat.items())
    told = greeted(helper, digest("\n".join(forms).encode()), _DOUBLE.pack(weight), gather)
    if len({form for form, _ in told}) > 1:
        raise UsageError(
            f"{helper}: the ranks' gradients are not of the same things: {unlike(forms, gather)}."
            " Give the same names, shapes and dtypes on every rank, zeros where one has no gradient"
        )
    return [_DOUBLE.unpack(weight)[0] for _, weight in told]


def _summed(grads: Any, flat: Mapping[str, mx.array], scale: float | None, ranks: Adding) -> Any:
    """``grads`` as a sum over the ranks, each times its ``scale`` if there is one. Not in their own
    dtypes: halves would be rounded, and small integers run over, at every rank."""
    sums: dict[str, mx.array] = {}
    # By name: trees that were built in another order are the same.
    names = sorted(flat, key=lambda name: (str(_wide(flat[name])), name))
    for wide, group in groupby(names, key=lambda name: _wide(flat[name])):
        alike = list(group)
        for start, end in buckets([wide.size * _length(flat[name]) for name in alike]):
            sums |= _bucket({name: flat[name] for name in alike[start:end]}, wide, scale, ranks)
    arrays = iter([sums[name] for name in flat])
    return _filled(grads, arrays)


def _bucket(
    arrays: Mapping[str, mx.array], wide: mx.Dtype, scale: float | None, ranks: Adding
) -> dict[str, mx.array]:
    sums = {}
    with mx.stream(mx.cpu):
        parts = [_row(array).astype(wide) for array in arrays.values()]
        if scale is not None:
            # What weighs nothing adds nothing, whatever it is: 0 times NaN would be NaN.
            parts = [part * scale if scale else mx.zeros_like(part) for part in parts]
        total = ranks.add(mx.concatenate(parts))
        at = 0
        for name, array in arrays.items():
            part = total[at : at + _length(array)]
            at += part.size
            part = part.view(array.dtype) if array.dtype == mx.complex64 else part
            sums[name] = part.astype(array.dtype).reshape(array.shape)
        mx.eval(sums)
    return sums


def _wide(array: mx.array) -> mx.Dtype:
    if array.dtype in (mx.float64, mx.uint64):
        return array.dtype
    return mx.float32 if mx.issubdtype(array.dtype, mx.inexact) else mx.int64


def _row(array: mx.array) -> mx.array:
    """Complex numbers as pairs."""
    row = array.reshape(-1)
    return mx.contiguous(row).view(mx.float32) if array.dtype == mx.complex64 else row


def _length(array: mx.array) -> int:
    return array.size * (2 if array.dtype == mx.complex64 else 1)


def _filled(tree: Any, arrays: Iterator[mx.array]) -> Any:
    """A tree like ``tree`` of these arrays, in its order."""
    if isinstance(tree, dict):
        return {key: _filled(item, arrays) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)):
        return rebuilt(tree, [_filled(item, arrays) for item in tree])
    return next(arrays)


def buckets(sizes: Sequence[int], most: int = BUCKET_BYTES) -> Iterator[tuple[int, int]]:
    """Ranges of neighbours that have at most so many bytes together; what is larger goes alone."""
    start = held = 0
    for at, size in enumerate(sizes):
        if at > start and held + size > most:
            yield start, at
            start, held = at, 0
        held += size
    if start < len(sizes):
        yield start, len(sizes)
