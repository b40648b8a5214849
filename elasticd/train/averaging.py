"""For scripts with a group of their own: gradients summed over its ranks.

They are evaluated first, and summed on the CPU: a GPU that waits for a late rank is ended by its
watchdog. Small ones travel together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

from elasticd.errors import UsageError

BUCKET_BYTES = 32 << 20


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
        UsageError: the weight is negative or not finite.
    """
    group = group or mx.distributed.init()
    share = weight if isinstance(weight, (float, int)) else float(weight.item())  # type: ignore[arg-type]
    if not 0 <= share < float("inf"):
        raise UsageError(f"average_gradients: weight= must be a finite number from 0, not {share}")
    if group.size() == 1:
        return grads
    total = mx.distributed.all_sum(mx.array(share), group=group, stream=mx.cpu).item()
    scale = share / total if total else 0.0
    return _summed(grads, scale, group)


def all_reduce_grads(grads: Any, *, group: mx.distributed.Group | None = None) -> Any:
    """The sum of the ranks' ``grads``, in their tree and dtypes; as they are on one rank."""
    group = group or mx.distributed.init()
    return grads if group.size() == 1 else _summed(grads, 1.0, group)


def _summed(grads: Any, scale: float | Any, group: mx.distributed.Group) -> Any:
    """In float32, whatever their dtypes: halves would be rounded at every rank."""
    flat: list[tuple[str, mx.array]] = tree_flatten(grads)  # type: ignore[assignment]
    mx.eval([array for _, array in flat])
    sums: list[mx.array] = []
    for start, end in buckets([4 * array.size for _, array in flat]):
        arrays = [array for _, array in flat[start:end]]
        with mx.stream(mx.cpu):
            # What weighs nothing adds nothing, whatever it is: 0 times NaN would be NaN.
            parts = [array.reshape(-1).astype(mx.float32) * scale for array in arrays]
            vector = mx.concatenate(parts) if scale else mx.zeros(sum(a.size for a in arrays))
            total = mx.distributed.all_sum(vector, group=group, stream=mx.cpu)
            at = 0
            for array in arrays:
                part = total[at : at + array.size].reshape(array.shape)
                sums.append(part.astype(array.dtype))
                at += array.size
            mx.eval(sums[start:end])
    named = [(name, array) for (name, _), array in zip(flat, sums, strict=True)]
    return tree_unflatten(named)


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
