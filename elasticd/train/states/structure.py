"""Which arrays a model has: those of ``Run(…)``, all along."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx

from elasticd.errors import UsageError
from elasticd.train.states.lazy import is_private
from elasticd.train.states.trees import describe

_USE = (
    "ave what uses the model between the steps called by run.evaluate(fn), which takes away what "
    "the model caches meanwhile"
)
_SHOWN = (
    "Give the model all its arrays before Run(…), frozen where they are to be trained only later; "
    f"unfreeze() them in the body. If it is a cache, h{_USE}"
)
_PRIVATE = f"H{_USE}; or make the array before Run(…), with the shape that it keeps"
_Kind = tuple[tuple[int, ...], mx.Dtype]


class Structure:
    """As it was when this was made, of some arrays by path."""

    def __init__(self, found: Mapping[str, mx.array]) -> None:
        self._first = _kinds(found)

    def check(self, found: Mapping[str, mx.array]) -> None:
        """A newcomer's model has no others, so there must be none.

        Raises:
            UsageError: naming the first difference.
        """
        now = _kinds(found)
        if now == self._first:
            return
        # What has come tells more than what is gone.
        for path in [*sorted(now), *sorted(self._first)]:
            if now.get(path) != self._first.get(path):
                raise UsageError(
                    f"the model's {path} is {_shown(now.get(path))}, at Run(…) it was "
                    f"{_shown(self._first.get(path))}: a newcomer's model, which is as at "
                    f"Run(…), can't take that state. {_PRIVATE if is_private(path) else _SHOWN}"
                )


def _kinds(found: Mapping[str, mx.array]) -> dict[str, _Kind]:
    return {path: (array.shape, array.dtype) for path, array in found.items()}


def _shown(kind: _Kind | None) -> str:
    return "absent" if kind is None else describe(mx.zeros(*kind))
