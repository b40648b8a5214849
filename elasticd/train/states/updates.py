"""Reduced gradients that were applied, kept so that others can apply them too.

A member that fell out of a step before its end, and a newcomer that was given an older state,
catch up with them: the same optimizer, given the same gradients, makes the same bits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

from elasticd.checkpoints.codec import METADATA_KEY
from elasticd.errors import MismatchError, StateError
from elasticd.types import NodeId, Point, Stamp, Tag, next_stamp

_GRADIENT, _STATE = "gradient/", "state/"


@dataclass(frozen=True)
class Update:
    """What led from the state ``before`` to that of ``step``.

    ``tensors``: the gradient as it was given to the optimizer, and state that forward passes
    changed. ``skips``: the step was counted without an update.
    """

    before: Stamp
    generation: Tag
    step: int
    stamp: Stamp
    skips: bool
    tensors: Mapping[str, mx.array]

    @classmethod
    def of(
        cls,
        before: Point,
        generation: Tag,
        skips: bool,
        state: Mapping[str, mx.array],
        gradients: Any,
    ) -> Update | None:
        """None if the gradients' tree can't be told from its paths."""
        step = before.step + 1
        stamp = next_stamp(before.stamp, generation, step)
        tensors = {}
        if not skips:
            if not _plain(gradients):
                return None
            named = _named(gradients)
            flat: list[tuple[str, mx.array]] = list(tree_flatten(named))  # type: ignore[arg-type]
            tensors = {_STATE + path: array for path, array in state.items()}
            tensors |= {_GRADIENT + path: array for path, array in flat}
            mx.eval(tensors)
        return cls(before.stamp, generation, step, stamp, skips, tensors)

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in self.tensors.values())

    @property
    def state(self) -> dict[str, mx.array]:
        """The arrays that forward passes changed, by path."""
        return {n.removeprefix(_STATE): a for n, a in self.tensors.items() if n.startswith(_STATE)}

    @property
    def gradients(self) -> Any:
        """The gradient, in its tree."""
        size = len(_GRADIENT)
        leaves = [(n[size:], a) for n, a in self.tensors.items() if n.startswith(_GRADIENT)]
        return _unnamed(tree_unflatten(leaves))

    def follows(self, point: Point) -> bool:
        """Whether it leads on from ``point``, and is what it says it is."""
        stamp = next_stamp(point.stamp, self.generation, point.step + 1)
        return (self.before, self.step, self.stamp) == (point.stamp, point.step + 1, stamp)


def _plain(tree: Any) -> bool:
    """Whether a path names one place: no dots in keys, nothing but dicts and lists."""
    if isinstance(tree, dict):
        return all(_is_name(key) and _plain(value) for key, value in tree.items())
    if isinstance(tree, list):
        return all(_plain(item) for item in tree)
    return isinstance(tree, mx.array)


_DIGITS = "'"
"""Stands before a key that would be taken for a place in a list."""


def _is_name(key: Any) -> bool:
    return isinstance(key, str) and "." not in key and not key.startswith(_DIGITS)


def _is_number(key: str) -> bool:
    try:
        int(key)
    except ValueError:
        return False
    return True


def _named(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {(_DIGITS + k if _is_number(k) else k): _named(v) for k, v in tree.items()}
    return [_named(item) for item in tree] if isinstance(tree, list) else tree


def _unnamed(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key.removeprefix(_DIGITS): _unnamed(value) for key, value in tree.items()}
    return [_unnamed(item) for item in tree] if isinstance(tree, list) else tree


def packed(updates: Sequence[Update]) -> tuple[dict[str, mx.array], dict[str, str]]:
    """Updates as the tensors and metadata of one file."""
    rows = [
        {
            "before": u.before,
            "generation": [u.generation.counter, u.generation.leader, u.generation.nonce],
            "step": u.step,
            "stamp": u.stamp,
            "skips": u.skips,
        }
        for u in updates
    ]
    tensors = {f"{u.step}/{name}": array for u in updates for name, array in u.tensors.items()}
    return tensors, {METADATA_KEY: json.dumps({"updates": rows}, sort_keys=True)}


def unpacked(tensors: Mapping[str, mx.array], metadata: Mapping[str, str]) -> list[Update] | None:
    """What :func:`packed` wrote; None if the file holds something else, a whole state.

    Raises:
        MismatchError: it is damaged.
    """
    try:
        rows = json.loads(metadata[METADATA_KEY]).get("updates")
        if rows is None:
            return None
        found = []
        for row in rows:
            counter, leader, nonce = row["generation"]
            prefix = f"{int(row['step'])}/"
            own = {n.removeprefix(prefix): a for n, a in tensors.items() if n.startswith(prefix)}
            found.append(
                Update(
                    Stamp(row["before"]),
                    Tag(int(counter), NodeId(leader), str(nonce)),
                    int(row["step"]),
                    Stamp(row["stamp"]),
                    bool(row["skips"]),
                    own,
                )
            )
        return found
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MismatchError(f"the file holds no updates of a job: {error!r}") from error


def check_follow(updates: Sequence[Update], point: Point | None) -> None:
    """Raise StateError unless ``updates`` lead on from ``point``, one after the other."""
    for update in updates:
        if point is None or not update.follows(point):
            raise StateError(f"the update of step {update.step} doesn't follow {point}")
        point = Point(point.lineage, update.step, update.stamp)
