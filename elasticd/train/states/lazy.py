"""Private arrays that a module makes at its first forward pass, and keeps: frequencies, masks.

They may have come of parameters that are others by now, so from step 1 on they are part of the
state as all its arrays are. A process that joins gets them before its own first pass. One that goes
back to step 0 makes them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from elasticd.train.states.attributes import Attributes
from elasticd.train.states.containers import remember

_ROOT = "model"
"""As attributes call it."""
_ABSENT = object()


def is_private(path: str) -> bool:
    """Whether a part of the path begins with an underscore: it names no parameter."""
    return any(part.startswith("_") for part in path.split("."))


class LazyArrays:
    """Of one model, in this process."""

    def __init__(self, model: Module, attributes: Attributes) -> None:
        """``attributes`` are told what is one of these, and no plain value any more."""
        self._model, self._attributes = model, attributes
        self.paths: set[str] = set()
        self._before = dict(_plain(model))
        """What stood at ``Run(…)`` where modules keep private things that are no arrays."""

    def __contains__(self, path: str) -> bool:
        return path in self.paths

    def admit(self, paths: Iterable[str]) -> bool:
        """A first pass has made these. False if they are no private arrays of a module."""
        found = set(paths)
        if not all(is_private(path) and self._holder(path) is not None for path in found):
            return False
        self._add(found)
        return True

    def _add(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.paths.add(path)
            holder, _, name = f"{_ROOT}.{path}".rpartition(".")
            self._attributes.leave_out(holder, name)

    def without(self, arrays: Mapping[str, mx.array]) -> Mapping[str, mx.array]:
        """Those that were there at ``Run(…)``."""
        if not self.paths:
            return arrays
        return {path: array for path, array in arrays.items() if path not in self.paths}

    def missing(self, here: Mapping[str, Any], state: Mapping[str, mx.array]) -> set[str]:
        """What the state has that no pass has made here yet."""
        return {
            path
            for path in state.keys() - here.keys()
            if is_private(path) and self._holder(path) is not None
        }

    def fit(self, state: Mapping[str, mx.array], made: Collection[str]) -> None:
        """Have those that ``state`` has, the ``made`` among them, and no others."""
        for path in made:
            setattr(self._holder(path), path.rpartition(".")[2], state[path])
        self._add(made)
        for path in [path for path in self.paths if path not in state]:
            self._unmake(path)

    def _unmake(self, path: str) -> None:
        holder, name = self._holder(path), path.rpartition(".")[2]
        if holder is None or name not in holder:
            return
        del holder[name]
        before = self._before.get(path, _ABSENT)
        if before is not _ABSENT:
            setattr(holder, name, before)

    def _holder(self, path: str) -> Module | None:
        """The module that has it; None if it is in none, or in a list of one."""
        thing: Any = self._model
        for key in path.split(".")[:-1]:
            try:
                thing = thing[int(key)] if isinstance(thing, (list, tuple)) else thing[key]
            except (KeyError, IndexError, ValueError, TypeError):
                return None
        return thing if isinstance(thing, Module) else None


def keep_arrays(model: Module) -> Callable[[], None]:
    """Remember which arrays a model's modules have. The result takes away those that have come
    since, and puts back those that are gone, or are of another shape or dtype now: caches of one
    process, that others never made."""
    modules: list[Module] = model.modules()  # type: ignore[no-untyped-call]
    held = [
        (
            module,
            list(module),
            {name: (value, _kinds(value), remember(value)) for name, value in _own(module)},
        )
        for module in modules
    ]

    def put_back() -> None:
        for module, order, before in held:
            now = dict(_own(module))
            for name in now.keys() | before.keys():
                value, kinds, refill = before.get(name, (_ABSENT, None, None))
                if _kinds(now.get(name)) == kinds:
                    continue
                module.pop(name, None)
                vars(module).pop(name, None)
                if refill is not None:
                    refill()
                    setattr(module, name, value)
            if list(module) != order:  # in which norms are summed
                for name in order:
                    if name in module:
                        module[name] = module.pop(name)

    return put_back


def _own(module: Module) -> Iterable[tuple[str, Any]]:
    """What it has, but for other modules."""
    for name, value in (*vars(module).items(), *module.items()):
        if not _has_module(value):
            yield name, value


def _has_module(value: Any) -> bool:
    if isinstance(value, Module) or not isinstance(value, (dict, list, tuple)):
        return isinstance(value, Module)
    return any(map(_has_module, value.values() if isinstance(value, dict) else value))


def _kinds(value: Any) -> Any:
    """The shapes and dtypes of the arrays in it; None if there are none."""
    if isinstance(value, mx.array):
        return value.shape, value.dtype
    if not isinstance(value, (dict, list, tuple)):
        return None
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {key: kinds for key, item in items if (kinds := _kinds(item)) is not None} or None


def _plain(model: Module) -> Iterable[tuple[str, Any]]:
    modules: list[tuple[str, Module]] = model.named_modules()  # type: ignore[no-untyped-call]
    for path, module in modules:
        for name, value in vars(module).items():
            if name.startswith("_") and not isinstance(value, (Module, mx.array)):
                yield f"{path}.{name}" if path else name, value
