"""Updates that were applied, kept so that others can apply them too.

Two kinds of trainers are a step behind. A member that missed the end of a step is in the loop's
body of that step itself: all that it lacks is the gradient as it was reduced. A newcomer that was
given an older state runs no bodies of old: it needs the gradient as the optimizer was given it, and
what the script's own code changed besides. The same optimizer, given the same, makes the same bits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

from elasticd.checkpoints.codec import METADATA_KEY
from elasticd.errors import MismatchError, StateError
from elasticd.train.states.state import Own, Snapshot
from elasticd.train.states.trees import changed
from elasticd.types import NodeId, Point, Stamp, Tag, next_stamp

_GRADIENT, _REDUCED, _STATE = "gradient/", "reduced/", "state/"
_BEFORE, _AFTER, _TRACKED = "before/", "after/", "tracked/"
_RANKS = "ranks/"


@dataclass(frozen=True)
class Reduced:
    """What a step's reduction brought: means over the global batch, as evaluated arrays."""

    loss: float
    weight: float
    metrics: Mapping[str, float]
    state: Mapping[str, mx.array]
    gradients: Any
    not_finite: str = ""
    """The path of a gradient that isn't."""


@dataclass(frozen=True)
class Body:
    """What the script's own code made of the state in one step: of model and optimizer what it
    changed before the update and after it, and all that it tracks."""

    before: Own
    after: Own
    tracked: Mapping[str, mx.array]
    tracked_plain: Mapping[str, Any]


@dataclass(frozen=True)
class Update:
    """What led from the state ``before`` to that of ``step``.

    ``gradient``: as the optimizer was given it, unless ``clip_norm`` says that it was clipped then;
    ``reduced``: as it was before the script replaced it. ``skips``: the step was counted without an
    update. ``body`` is None until the loop's body is done, and where it can't be told.
    """

    before: Stamp
    generation: Tag
    step: int
    stamp: Stamp
    skips: bool
    loss: float
    metrics: Mapping[str, float]
    clip_norm: float | None
    state: Mapping[str, mx.array]
    """The arrays that forward passes changed, by path."""
    gradient: Any
    reduced: Any
    body: Body | None = None
    ranks: Mapping[int, mx.array] = field(default_factory=dict)
    """What was known, in that step, of each rank's own things."""
    on_cpu: bool = False
    """It is made on the CPU, wherever else updates are made."""

    @classmethod
    def of(
        cls,
        before: Point,
        generation: Tag,
        skips: bool,
        reduced: Reduced,
        gradient: Any,
        clip_norm: float | None = None,
    ) -> Update | None:
        """None if the gradients' tree can't be told from its paths."""
        alike = gradient is reduced.gradients
        if not _plain(gradient) or not (alike or _plain(reduced.gradients)):
            return None
        step = before.step + 1
        stamp = next_stamp(before.stamp, generation, step)
        mx.eval(gradient)
        loss, metrics, state = reduced.loss, reduced.metrics, reduced.state
        kept = reduced.gradients
        if not alike and changed(_flat(kept), _flat(gradient)) == {}:
            kept = gradient
        parts = (before.stamp, generation, step, stamp, skips, loss, metrics, clip_norm, state)
        return cls(*parts, gradient, kept)

    @property
    def complete(self) -> bool:
        """Whether a newcomer can apply it."""
        return self.body is not None

    def with_body(self, before: Own | None, after: Own | None, snapshot: Snapshot) -> Update:
        """It, now that the loop's body is done and has left ``snapshot``, with what that changed;
        as it is where that can't be told."""
        if before is None or after is None:
            return self
        tracked = snapshot.plain["tracked"]
        return replace(self, body=Body(before, after, snapshot.tracked, tracked))

    @cached_property
    def tensors(self) -> dict[str, mx.array]:
        """All its arrays, by name."""
        found = {_STATE + path: array for path, array in self.state.items()}
        found |= {f"{_RANKS}{place}": array for place, array in self.ranks.items()}
        found |= {_GRADIENT + path: array for path, array in _flat(self.gradient).items()}
        if self.reduced is not self.gradient:
            found |= {_REDUCED + path: array for path, array in _flat(self.reduced).items()}
        if self.body is not None:
            found |= {_BEFORE + name: array for name, array in self.body.before.tensors.items()}
            found |= {_AFTER + name: array for name, array in self.body.after.tensors.items()}
            found |= {_TRACKED + name: array for name, array in self.body.tracked.items()}
        return found

    @property
    def bytes(self) -> int:
        return self._bytes

    @cached_property
    def _bytes(self) -> int:
        return sum(array.nbytes for array in self.tensors.values())

    def follows(self, point: Point) -> bool:
        """Whether it leads on from ``point``, and is what it says it is."""
        stamp = next_stamp(point.stamp, self.generation, point.step + 1)
        return (self.before, self.step, self.stamp) == (point.stamp, point.step + 1, stamp)

    def as_reduced(self, weight: float = 1.0) -> Reduced:
        """The step as its reduction brought it."""
        return Reduced(self.loss, weight, self.metrics, self.state, self.reduced)

    def row(self) -> dict[str, Any]:
        """All of it that is no array, for JSON."""
        body = self.body
        return {
            "before": self.before,
            "generation": [self.generation.counter, self.generation.leader, self.generation.nonce],
            "step": self.step,
            "stamp": self.stamp,
            "skips": self.skips,
            "loss": self.loss,
            "metrics": dict(self.metrics),
            "clip_norm": self.clip_norm,
            "order": list(_flat(self.gradient)),
            "replaced": self.reduced is not self.gradient,
            "body": body and [_row(body.before), _row(body.after), body.tracked_plain],
            "on_cpu": self.on_cpu,
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any], tensors: Mapping[str, mx.array]) -> Update:
        """The inverse of :meth:`row` and :attr:`tensors`. Raises KeyError, TypeError, ValueError
        or AttributeError."""
        counter, leader, nonce = row["generation"]
        order = [str(path) for path in row["order"]]
        gradient = _tree(_below(tensors, _GRADIENT), order)
        body = None
        if row["body"] is not None:
            before, after, tracked = row["body"]
            body = Body(
                Own(_below(tensors, _BEFORE), *before),
                Own(_below(tensors, _AFTER), *after),
                _below(tensors, _TRACKED),
                dict(tracked),
            )
        return cls(
            Stamp(row["before"]),
            Tag(int(counter), NodeId(leader), str(nonce)),
            int(row["step"]),
            Stamp(row["stamp"]),
            bool(row["skips"]),
            float(row["loss"]),
            {str(name): float(value) for name, value in row["metrics"].items()},
            None if row["clip_norm"] is None else float(row["clip_norm"]),
            _below(tensors, _STATE),
            gradient,
            _tree(_below(tensors, _REDUCED), order) if row["replaced"] else gradient,
            body,
            {int(place): array for place, array in _below(tensors, _RANKS).items()},
            bool(row.get("on_cpu", False)),  # an older build doesn't say
        )


def _row(own: Own) -> list[Any]:
    return [own.plain, own.values]


def _below(tensors: Mapping[str, mx.array], prefix: str) -> dict[str, mx.array]:
    return {n.removeprefix(prefix): a for n, a in tensors.items() if n.startswith(prefix)}


def _flat(tree: Any) -> dict[str, mx.array]:
    return dict(tree_flatten(_named(tree)))


def _tree(leaves: Mapping[str, mx.array], order: Sequence[str]) -> Any:
    """The order counts: of a norm's sum, and of random numbers that are drawn for each leaf."""
    return _unnamed(tree_unflatten([(path, leaves[path]) for path in order]))


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
    rows = [update.row() for update in updates]
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
        return [Update.from_row(row, _below(tensors, f"{int(row['step'])}/")) for row in rows]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MismatchError(f"the file holds no updates of a job: {error!r}") from error


def check_follow(updates: Sequence[Update], point: Point | None) -> None:
    """Raise StateError unless ``updates`` lead on from ``point``, one after the other."""
    for update in updates:
        if point is None or not update.follows(point):
            raise StateError(f"the update of step {update.step} doesn't follow {point}")
        point = Point(point.lineage, update.step, update.stamp)
