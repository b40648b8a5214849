"""What a script tracks: how such things are read and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim
from mlx.nn.layers.base import Module

from elasticd.errors import UsageError
from elasticd.train.states.containers import put_state
from elasticd.train.states.trees import array_slots, arrays, check_alike, take_apart

STREAM = "elasticd.stream"
"""Under this name the position of the data stream is tracked."""
STATE = "elasticd.state"
"""Under this name ``run.state`` is tracked."""
RANKS = "elasticd.ranks"
"""Under this name what each rank has of its own is tracked."""


@dataclass(frozen=True)
class Tracked:
    """How to read and write one object of the user's own."""

    thing: Any
    get: Callable[[], Any]
    put: Callable[[Any], None]

    @classmethod
    def of(cls, name: str, thing: Any) -> Tracked:
        """Find out how ``thing`` is read and written.

        Raises:
            UsageError: there is no way; or what is in a dict or list can't be stored.
        """
        if isinstance(thing, Module):
            return cls(
                thing, lambda: arrays(thing.state), lambda saved: _put_arrays(name, thing, saved)
            )
        if isinstance(thing, optim.Optimizer):
            return cls(thing, lambda: thing.state, lambda saved: put_state(thing, saved))
        if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
            return cls(thing, thing.state_dict, thing.load_state_dict)
        if hasattr(thing, "state") and hasattr(thing, "load_state"):
            return cls(
                thing,
                lambda: thing.state() if callable(thing.state) else thing.state,
                thing.load_state,
            )
        if isinstance(thing, dict):
            take_apart(dict(thing), f"user/{name}/", {})
            return cls(thing, lambda: dict(thing), lambda saved: _put_dict(thing, saved))
        if isinstance(thing, list):
            take_apart(list(thing), f"user/{name}/", {})
            return cls(
                thing, lambda: list(thing), lambda saved: thing.__setitem__(slice(None), saved)
            )
        raise UsageError(
            f"run.track({name!r}, …): a {type(thing).__name__} has neither state_dict() and "
            "load_state_dict(), nor state and load_state(), and is no dict or list"
        )


def _put_dict(thing: dict[Any, Any], saved: dict[Any, Any]) -> None:
    thing.clear()
    for key, value in saved.items():  # update() of a Counter adds
        thing[key] = value


def _put_arrays(name: str, module: Module, saved: Mapping[str, mx.array]) -> None:
    places = array_slots(module.state)
    check_alike(f"{name}:", {path: slot.value for path, slot in places.items()}, saved, kinds=False)
    for path, slot in places.items():
        slot.put(saved[path])
