"""What is summed besides the gradients of what is trained: part of the state, so that a newcomer
sums what the others do, whatever its own first forward pass shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

from elasticd.errors import MismatchError
from elasticd.train.states.trees import array_slots, rebuilt

_STATISTICS = ("running_mean", "running_var")


def is_statistic(path: str) -> bool:
    """Whether an array is what nn.BatchNorm, and what follows its names, knows of the data:
    forward passes change it while its module is in training mode."""
    return path.rpartition(".")[2] in _STATISTICS


@dataclass(frozen=True)
class Shaped:
    """An array without its values."""

    path: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Summed:
    """As the job's first grain had it. ``assigned``: the model's arrays that forward passes assign,
    whether to other values or not, and statistics that they may assign later; ``beside``: what had
    a gradient though it isn't trained; ``metrics`` of the loss."""

    assigned: tuple[str, ...]
    beside: tuple[Shaped, ...]
    metrics: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "assigned": list(self.assigned),
            "beside": [[one.path, list(one.shape), one.dtype] for one in self.beside],
            "metrics": list(self.metrics),
        }

    @classmethod
    def from_plain(cls, plain: Any) -> Summed | None:
        """The inverse of :meth:`plain`; None if the state doesn't say: that of step 0, or of an
        earlier version.

        Raises:
            MismatchError: it is damaged.
        """
        if plain is None:
            return None
        try:
            beside = tuple(
                Shaped(str(path), tuple(map(int, shape)), str(dtype))
                for path, shape, dtype in plain["beside"]
            )
            assigned, metrics = (tuple(map(str, plain[name])) for name in ("assigned", "metrics"))
        except (KeyError, TypeError, ValueError) as error:
            raise MismatchError(f"the state doesn't say what is summed: {error!r}") from error
        return cls(assigned, beside, metrics)

    def tree_beside(self, parameters: Any) -> Any:
        """The gradients of what isn't trained, as zeros, in the tree of the ``parameters``."""
        if not self.beside:
            return {}
        zeros = {one.path: mx.zeros(one.shape, getattr(mx, one.dtype)) for one in self.beside}
        tree = narrowed(parameters, zeros.__contains__)
        places = array_slots(tree)
        for path, slot in places.items():
            slot.put(zeros[path])
        strange = [(path, array) for path, array in zeros.items() if path not in places]
        return joined(tree, tree_unflatten(strange)) if strange else tree


def pruned(tree: Any, kept: Any) -> Any:
    """Gradients without what has no leaf and isn't in ``kept``, an optimizer's state. A module's
    dict or list of numbers is such a one; it may grow, while an optimizer keeps the keys and the
    length with which it began."""
    if isinstance(tree, dict):
        there = kept if isinstance(kept, dict) else {}
        return {
            key: pruned(item, there.get(key))
            for key, item in tree.items()
            if key in there or tree_flatten(item)
        }
    if not _is_container(tree):
        return tree
    first = kept if isinstance(kept, (list, tuple)) else ()
    size = len(tree)
    while size > len(first) and not tree_flatten(tree[size - 1]):
        size -= 1
    return rebuilt(tree, map(pruned, tree[:size], [*first, *[None] * size]))


def narrowed(tree: Any, keep: Callable[[str], bool], prefix: str = "") -> Any:
    """A tree with those of its leaves alone whose paths are to be kept. Its dicts and lists stay,
    but for a list of leaves of which none is kept."""
    if isinstance(tree, dict):
        return {
            key: narrowed(item, keep, f"{prefix}{key}.")
            for key, item in tree.items()
            if _is_container(item) or keep(f"{prefix}{key}")
        }
    if not _is_container(tree):
        return tree
    leaves = [number for number, item in enumerate(tree) if not _is_container(item)]
    if leaves and not any(keep(f"{prefix}{number}") for number in leaves):
        return {}
    return rebuilt(tree, (narrowed(item, keep, f"{prefix}{n}.") for n, item in enumerate(tree)))


def _is_container(tree: Any) -> bool:
    return isinstance(tree, (dict, list, tuple))


def joined(one: Any, other: Any) -> Any:
    """A tree with the leaves of both; where both have something, that of ``one``."""
    if isinstance(one, dict) and isinstance(other, dict):
        both = {key: joined(item, other.get(key)) for key, item in one.items()}
        return both | {key: item for key, item in other.items() if key not in one}
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        both_lists = [joined(*pair) for pair in zip(one, other, strict=False)]
        longer = one if len(one) > len(other) else other
        return rebuilt(one, [*both_lists, *longer[len(both_lists) :]])
    return other if one is None or (other is not None and _is_empty(one)) else one


def _is_empty(tree: Any) -> bool:
    return _is_container(tree) and not tree
