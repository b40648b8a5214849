"""One update before the first step, which is undone: what would it come to, and what does it change
that can't be kept alike on all ranks?"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from elasticd.checkpoints.codec import model_digest
from elasticd.errors import UsageError
from elasticd.train.states.attributes import alike, remembered
from elasticd.train.states.holders import MOST_LEAVES, is_plain, is_tool, optimizers_of, unkept
from elasticd.train.states.state import TrainingState
from elasticd.train.states.trees import arrays, take_apart
from elasticd.train.steps import randomness, streams


def trial_update(state: TrainingState, gradients: Any, seed: int, *, twice: bool = False) -> str:
    """The digest of what one update with ``gradients`` makes of the state, which stays as it is;
    empty while the optimizer isn't known. It is made ``twice`` even if all that it seems to change
    is arrays.

    Raises:
        UsageError: the update changes what can't be stored, or is not the same twice.
    """
    if state.optimizer is None:
        return ""
    found = _try(state, gradients, seed)
    if found.changed or twice:
        again = _try(state, gradients, seed)
        _refuse_unlike(found.changed, again.changed)
        if found.digest != again.digest and _differs_by_itself(state, gradients, seed):
            raise UsageError(
                "the same update made twice came to other values, so the optimizer keeps something"
                " where it isn't found: in a global variable, say, or an iterator. Keep it"
                " as an attribute of the optimizer: a number, an array, or a list or dict of them"
            )
    return found.digest


def _differs_by_itself(state: TrainingState, gradients: Any, seed: int) -> bool:
    """Whether two updates that differ do so on the CPU, too: a GPU may add up in any order."""
    if not streams.HERE.apart:
        return True
    return len({cpu_trial(state, gradients, seed, "") for _ in range(2)}) > 1


def cpu_trial(state: TrainingState, gradients: Any, seed: int, usual: str) -> str:
    """The digest of the same update, made on the CPU; ``usual`` is that of the usual one. Empty: it
    can't be made there, as with an optimizer that has kernels of its own for the GPU."""
    if not streams.HERE.apart:
        return usual
    restore = state.copy()
    try:
        with streams.HERE.cpu():
            return _try(state, gradients, seed).digest
    except (RuntimeError, ValueError, TypeError, NotImplementedError, MemoryError, UsageError):
        restore()
        return ""


@dataclass(frozen=True)
class _Found:
    """The digest of the state behind an update, and what that changed beside arrays."""

    digest: str
    changed: Mapping[str, Any]


def _try(state: TrainingState, gradients: Any, seed: int) -> _Found:
    assert state.optimizer is not None
    before, restore, marks = state.attributes.look(), state.copy(), _marks(state.optimizer)
    randomness.seed_update(seed, 0)
    state.update(gradients)
    changed = {path: remembered(value) for path, value in state.attributes.since(before).items()}
    for path, value in changed.items():
        take_apart(value, f"attributes/{path}", {})  # refuses what would come back otherwise
    held: dict[str, mx.array] = {
        **{"model/" + path: array for path, array in arrays(state.model.state).items()},
        **{"optimizer/" + path: array for path, array in arrays(state.optimizer.state).items()},
        **{"attributes/" + path: _as_array(value) for path, value in changed.items()},
    }
    mx.eval(held)
    digest = model_digest(held)
    after = _marks(state.optimizer)
    restore()
    for name, (value, mark) in marks.items():
        if name in after and after[name][1] != mark:
            raise unkept(name, value)
    return _Found(digest, changed)


def _as_array(value: Any) -> mx.array:
    return mx.array(np.frombuffer(repr(_text(value)).encode(), np.uint8))


def _text(value: Any) -> Any:
    """Arrays by their bytes."""
    if isinstance(value, dict):
        return [(key, _text(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [_text(item) for item in value]
    if isinstance(value, mx.array):
        return model_digest({"": value})
    return value.tobytes() if isinstance(value, (np.ndarray, np.generic)) else value


def _refuse_unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    for path in sorted({*one, *other}):
        if path not in one or path not in other or not alike(one[path], other[path]):
            raise UsageError(
                f"{path.replace(':', '.')}: the same update made twice left other values there, so "
                "ranks would differ. They may come from a clock, or from a generator of their own; "
                "compute them from what all ranks have alike, such as optimizer.step"
            )


def _marks(optimizer: Any) -> dict[str, tuple[Any, Any]]:
    """Attributes that can't be stored, with something that shows whether they change."""
    return {
        f"{name}.{key}": (value, _mark(value))
        for name, each in optimizers_of("optimizer", optimizer)
        for key, value in vars(each).items()
        if not is_plain(value) and not is_tool(key, value)
    }


def _mark(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return frozenset(value) if len(value) <= MOST_LEAVES else len(value)
    if isinstance(value, dict):
        items = list(value.values())
    elif isinstance(value, (list, tuple, deque)):
        items = list(value)
    else:
        items = _attributes(value)
    return len(items), [item if isinstance(item, (int, float, str)) else id(item) for item in items]


def _attributes(value: Any) -> list[Any]:
    """What an object has, in slots too."""
    found: Any = object.__getstate__(value)
    parts = found if isinstance(found, tuple) else (found,)
    return [item for part in parts if part for item in part.values()]
