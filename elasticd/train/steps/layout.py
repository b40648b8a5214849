"""What is summed over the grains of a step, as one flat vector of float32.

First the header: the sum of weight times loss, the sum of weights, the sums of weight times each
metric, in how many grains each gradient was there, and how many changed each state. Then the state
that a forward pass may change, times weight. State of integers must come out equal in every grain:
its bytes travel as half-bytes and their squares, whose sums show both the value and any
disagreement (by Cauchy and Schwarz, n times the sum of squares is the square of the sum only if all
n are equal). Then the gradients, times weight. A grain's weight is its number of samples unless the
loss says otherwise; one of weight 0 adds nothing, whatever its values are.

The leaves are a function of the state, so all ranks have the same (see leaves.py). In a step some
gradients may be absent, of all grains alike: they are summed as zeros, and not handed back. State
that no grain has changed stays as it was.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_map, tree_map_with_path

from elasticd.checkpoints.codec import model_digest
from elasticd.errors import StateError, UsageError
from elasticd.train.states.summed import is_statistic, narrowed
from elasticd.train.states.trees import describe
from elasticd.train.states.updates import Reduced
from elasticd.train.steps.weighted import GrainLoss, check_total

Vector = list[mx.array]
"""The vector in pieces: flat float32 arrays, in the layout's order."""


def vector_digest(vector: Sequence[mx.array]) -> str:
    """In hex, of a vector that is evaluated."""
    return model_digest({f"{number:08d}": piece for number, piece in enumerate(vector)})


GRADIENT_DTYPES = (mx.float32, mx.bfloat16, mx.float16)


@dataclass(frozen=True)
class Leaf:
    """One array; ``dtype`` is that in which it is handed back."""

    path: str
    shape: tuple[int, ...]
    dtype: mx.Dtype

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The order of the leaves. ``template`` is the gradients' tree with their paths as leaves."""

    floats: tuple[Leaf, ...]
    integers: tuple[Leaf, ...]
    gradients: tuple[Leaf, ...]
    metrics: tuple[str, ...]
    template: Any = field(compare=False, repr=False)

    @classmethod
    def of(
        cls,
        gradients: Any,
        parameters: Mapping[str, mx.array],
        changed: Mapping[str, mx.array],
        metrics: Iterable[str] = (),
    ) -> Layout:
        """Find the layout.

        Args:
            gradients: the tree of all gradients that a grain may have.
            parameters: the model's arrays by path; a gradient returns in its parameter's dtype.
            changed: the state that a forward pass may change, by path.
            metrics: the names of those that the loss returned.

        Raises:
            UsageError: a gradient isn't float32, bfloat16 or float16.
        """
        leaves = []
        for path, array in flatten(gradients).items():
            check_sums(path, array)
            dtype = parameters[path].dtype if path in parameters else array.dtype
            leaves.append(Leaf(path, tuple(array.shape), dtype))
        kinds: tuple[list[Leaf], list[Leaf]] = ([], [])
        for path in sorted(changed):
            array = changed[path]
            integer = not mx.issubdtype(array.dtype, mx.floating)
            kinds[integer].append(Leaf(path, tuple(array.shape), array.dtype))
        floats, integers = map(tuple, kinds)
        template = tree_map_with_path(lambda path, _: path, gradients)
        return cls(floats, integers, tuple(leaves), tuple(sorted(metrics)), template)

    @cached_property
    def state(self) -> tuple[Leaf, ...]:
        """The state that a forward pass changes."""
        return self.floats + self.integers

    @cached_property
    def state_paths(self) -> frozenset[str]:
        return frozenset(leaf.path for leaf in self.state)

    @cached_property
    def gradient_paths(self) -> frozenset[str]:
        return frozenset(leaf.path for leaf in self.gradients)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Elements of each piece of a vector."""
        header = 2 + len(self.metrics) + len(self.gradients) + len(self.state)
        sizes = [header, *(leaf.size for leaf in self.floats)]
        for leaf in self.integers:
            sizes += [2 * leaf.size * leaf.dtype.size] * 2
        return (*sizes, *(leaf.size for leaf in self.gradients))

    @cached_property
    def size(self) -> int:
        """Elements of a vector."""
        return sum(self.lengths)

    def digest(self) -> str:
        """Names which state a forward pass changes, in what shapes, and the metrics."""
        lines = [f"metric {name}" for name in self.metrics]
        lines += [f"{leaf.path} {leaf.dtype} {leaf.shape}" for leaf in self.state]
        return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()

    def given(self, gradients: Any) -> dict[str, mx.array]:
        """A grain's gradients by path; some may be absent.

        Raises:
            UsageError: they are of another layout; names the first difference.
        """
        found = flatten(gradients)
        if strange := sorted(found.keys() - self.gradient_paths):
            raise UsageError(
                f"accumulate(): other gradients than before: {', '.join(strange)}; what is not "
                "trained when a step begins must have its gradient in step 1, or in no step"
            )
        for leaf in self.gradients:
            array = found.get(leaf.path)
            if array is not None and tuple(array.shape) != leaf.shape:
                raise UsageError(
                    f"accumulate(): expected the gradient of {leaf.path} with shape {leaf.shape}, "
                    f"was given {leaf.path} as {describe(array)}"
                )
        return found

    def pack(
        self,
        loss: GrainLoss,
        base: Mapping[str, mx.array],
        state: Mapping[str, mx.array],
        given: Mapping[str, mx.array],
    ) -> Vector:
        """One grain's vector, not evaluated.

        Args:
            loss: of the grain.
            base: the state before the forward pass, by path.
            state: the same behind it.
            given: what :meth:`given` returns.

        Raises:
            UsageError: state or metrics are of another layout; names the first difference.
        """
        factor = loss.weight

        def times(array: mx.array) -> mx.array:
            # 0 times NaN is NaN. A number of samples is never 0.
            weighed = array * factor
            return weighed if loss.counted else mx.where(factor == 0, 0.0, weighed)

        if tuple(loss.metrics) != self.metrics:
            names = sorted({*loss.metrics} ^ {*self.metrics})
            raise UsageError(f"the loss returned other metrics than before: {', '.join(names)}")
        after = {leaf.path: self._checked(leaf, state[leaf.path]) for leaf in self.state}
        means = [times(loss.mean), factor, *(times(loss.metrics[name]) for name in self.metrics)]
        flags = [float(leaf.path in given) for leaf in self.gradients]
        changes = [_differ(base[path], array) for path, array in after.items()]
        vector = [mx.concatenate([mx.stack(means), mx.array(flags, mx.float32), *changes])]
        vector += [times(_flat(after[leaf.path])) for leaf in self.floats]
        for leaf in self.integers:
            digits = _half_bytes(after[leaf.path])
            vector += [digits, digits * digits]
        for leaf in self.gradients:
            array = given.get(leaf.path)
            vector.append(mx.zeros((leaf.size,)) if array is None else times(_flat(array)))
        return vector

    def _checked(self, leaf: Leaf, array: mx.array) -> mx.array:
        if tuple(array.shape) != leaf.shape or array.dtype != leaf.dtype:
            raise UsageError(
                f"the forward pass made {describe(array)} of {leaf.path}, whose shape and dtype "
                "must stay as they are"
            )
        return array

    def split(self, flat: mx.array) -> Vector:
        """A vector that lies in one flat array, in pieces."""
        pieces, start = [], 0
        for length in self.lengths:
            pieces.append(flat[start : start + length])
            start += length
        return pieces

    def mean(self, total: Vector, grains: int, *, finite: bool = False) -> Reduced:
        """Divide the sum over all ``grains`` of a step by its weight. Where no sample had any the
        loss and the metrics are not a number, and the rest is 0. ``finite``: a gradient that isn't
        is named.

        Raises:
            UsageError: a gradient was there in some grains only, or grains have changed what has
                one; names it.
            StateError: integer state differs between grains; names it.
        """
        header, weight = self.header(total)
        there, changes = self._counts(total)
        divisor = mx.array(weight or 1.0, mx.float32)
        pieces = iter(total[1:])
        state = {leaf.path: _restore(leaf, next(pieces), divisor) for leaf in self.floats}
        for leaf in self.integers:
            state[leaf.path] = _agreed(leaf, next(pieces), next(pieces), grains)
        gradients = {}
        for (path, count), leaf, piece in zip(there.items(), self.gradients, pieces, strict=True):
            if 0 < count < grains:
                raise UsageError(
                    f"the gradient of {path} was there in {count} of the {grains} grains of a step,"
                    " and absent in the others; give zeros where it has none"
                )
            if count and changes.get(path):
                raise has_both(path)
            if count:
                gradients[path] = _restore(leaf, piece, divisor)
        state = {path: array for path, array in state.items() if changes[path]}
        sums = [array.sum() for array in gradients.values()] if finite else []
        mx.eval(state, gradients, sums)
        loss, *shown = header
        metrics = dict(zip(self.metrics, shown, strict=True))
        wrong = _not_finite(gradients, sums) if finite else ""
        return Reduced(loss, weight, metrics, state, self.tree_of(gradients), wrong)

    def header(self, total: Vector) -> tuple[list[float], float]:
        """The means of the loss and of the metrics over a step, and the weight of them all.

        Raises:
            UsageError: a weight was negative.
        """
        means = np.array(total[0])[: 2 + len(self.metrics)]
        weighted_loss, weight, *weighted = means
        check_total(weight)
        if weight == 0:
            return [math.nan] * (1 + len(weighted)), 0.0
        return [float(value / weight) for value in (weighted_loss, *weighted)], float(weight)

    def _counts(self, total: Vector) -> tuple[dict[str, int], dict[str, int]]:
        """In how many grains there was which gradient, and how many changed which state."""
        counts = map(int, np.array(total[0])[2 + len(self.metrics) :])
        there = {leaf.path: next(counts) for leaf in self.gradients}
        return there, {leaf.path: next(counts) for leaf in self.state}

    def returned(self, given: Mapping[str, mx.array]) -> Any:
        """A grain's own gradients as a step's are handed back."""
        dtypes = {leaf.path: leaf.dtype for leaf in self.gradients}
        return self.tree_of({path: array.astype(dtypes[path]) for path, array in given.items()})

    def tree_of(self, gradients: Mapping[str, mx.array]) -> Any:
        """Gradients by path as a tree."""
        whole = len(gradients) == len(self.gradients)
        tree = self.template if whole else narrowed(self.template, gradients.__contains__)
        return tree_map(lambda path: gradients[path], tree)


def has_both(path: str) -> UsageError:
    """What to say where forward passes change an array that has a gradient too."""
    if not is_statistic(path):
        return UsageError(f"the forward pass changes {path}, which has a gradient too: freeze it")
    name = path.rpartition(".")[0] or "it"
    return UsageError(
        f"the forward pass changes {path}, which has a gradient too. unfreeze() of a module above"
        " an nn.BatchNorm reaches its running statistics: behind it freeze them again, by"
        f' freeze(keys=["running_mean", "running_var"], recurse=False) of {name}'
    )


def check_sums(path: str, gradient: mx.array) -> None:
    """Raises UsageError for a gradient that can't be summed."""
    if gradient.dtype in GRADIENT_DTYPES:
        return
    cure = "let it and its parameter be float32"
    if mx.issubdtype(gradient.dtype, mx.complexfloating):
        cure = "keep the parameter as two arrays of float32, its real and its imaginary part"
    raise UsageError(
        f"the gradient of {path} is {describe(gradient)}; only float32, bfloat16 and float16 can be"
        f" summed: {cure}"
    )


def check_assigned(gradients: Any, places: Mapping[str, mx.array]) -> None:
    """Raises UsageError for gradients of a script's own that are none of these ``places``."""
    for path, array in flatten(gradients).items():
        if path not in places:
            raise UsageError(f"step.grads = …: the model has no parameter {path!r}")
        if array.shape != places[path].shape:
            raise UsageError(
                f"step.grads = …: the gradient of {path} has shape {array.shape}, its parameter"
                f" {places[path].shape}"
            )


def flatten(gradients: Any) -> dict[str, mx.array]:
    """Gradients by path.

    Raises:
        UsageError: something else is among them.
    """
    flat: list[tuple[str, mx.array]] = list(tree_flatten(gradients))  # type: ignore[arg-type]
    for path, array in flat:
        if not isinstance(array, mx.array):
            what = f"the gradient of {path} is" if path else "the gradients are"
            raise UsageError(
                f"{what} a {type(array).__name__}; give a tree of arrays, as nn.value_and_grad does"
            )
    return dict(flat)


def _float32(array: mx.array) -> mx.array:
    return array if array.dtype == mx.float32 else array.astype(mx.float32)


def _flat(array: mx.array) -> mx.array:
    return _float32(array).reshape(-1)


def _differ(before: mx.array, after: mx.array) -> mx.array:
    """One number: whether the bits are others."""
    if before is after or before.size == 0:
        return mx.zeros((1,))
    return mx.any(_bytes(before) != _bytes(after)).astype(mx.float32).reshape(1)


def _bytes(array: mx.array) -> mx.array:
    return mx.contiguous(array).reshape(-1).view(mx.uint8)


def _half_bytes(array: mx.array) -> mx.array:
    whole = _bytes(array)
    return mx.concatenate([whole & 15, whole >> 4]).astype(mx.float32)


def _restore(leaf: Leaf, piece: mx.array, divisor: mx.array) -> mx.array:
    mean = (piece / divisor).reshape(leaf.shape)
    return mean if leaf.dtype == mx.float32 else mean.astype(leaf.dtype)


def _not_finite(gradients: Mapping[str, mx.array], sums: Sequence[mx.array]) -> str:
    """The path of the first that isn't, or nothing. A finite sum has finite terms only; another one
    may have grown too large, so its terms are looked at."""
    for (path, array), total in zip(gradients.items(), sums, strict=True):
        if not math.isfinite(float(total)) and not mx.isfinite(array).all().item():
            return path
    return ""


def _agreed(leaf: Leaf, digits: mx.array, squares: mx.array, grains: int) -> mx.array:
    total, square = np.array(digits, dtype=np.float64), np.array(squares, dtype=np.float64)
    if not np.array_equal(total * total, square * grains):
        raise StateError(
            f"{leaf.path} is {leaf.dtype} and differs between the grains of a step, so the state "
            "after the step would depend on who computed what; freeze it or make it a float"
        )
    low, high = np.split((total / grains).astype(np.uint8), 2)
    array = mx.array(low | (high << 4)).view(leaf.dtype)
    return array.reshape(leaf.shape)
