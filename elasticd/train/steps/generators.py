"""Random generators of the script's own: they are seeded wherever the global ones are.

``rng = np.random.default_rng(7)`` above the loop, and ``rng.normal()`` in its body, in a loss or in
a dataset: where such a generator stands would depend on the history of its process, and a process
that joins has another. So what it draws is made a function of (its own seed, seed, where we are).
"""

from __future__ import annotations

import hashlib
import random
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import mlx.optimizers as optim
import numpy as np
from mlx.nn.layers.base import Module

DEEPEST = 2
"""``rng``, ``sampler.rng`` and ``trainer.sampler.rng`` are found, and no deeper ones."""
MOST_ITEMS = 1000
"""A container with more holds data."""
MOST_REACHED = 20_000
"""Objects that are looked at from where a stream begins."""

_KINDS = (random.Random, np.random.Generator, np.random.RandomState)
_BITS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
_CONTAINERS: tuple[Any, ...] = (dict, list, tuple)
_PLAIN = (int, float, complex, bool, str, bytes, type(None), np.ndarray)
_GLOBAL = (getattr(random, "_inst", None), np.random.mtrand._rand)
_CALLED = (types.FunctionType, types.MethodType)
_NOT_LOOKED_INTO = (types.ModuleType, types.FrameType, type, *_CALLED, optim.Optimizer)
"""An optimizer's own generators are part of the state."""


def is_generator(value: Any) -> bool:
    """Whether it is a generator that can be seeded, and none of the global ones."""
    if type(value) not in _KINDS or any(value is one for one in _GLOBAL):
        return False
    if isinstance(value, random.Random):
        return True
    if isinstance(value, np.random.RandomState):
        return bool(_state(value)["bit_generator"] == "MT19937")
    kind = type(value.bit_generator)
    return kind.__name__ in _BITS and getattr(np.random, kind.__name__, None) is kind


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.bit_generator.state


class OwnGenerator:
    """One of them. What it is seeded with follows from the state that it was found in."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator
        self._mark = mark_of(generator)

    def seed(self, key: int) -> None:
        """Have it stand where ``key`` says, of 64 bits."""
        digest = hashlib.blake2b(key.to_bytes(8, "big") + self._mark, digest_size=8).digest()
        own, generator = int.from_bytes(digest, "big"), self.generator
        if isinstance(generator, random.Random):
            generator.seed(own)
        elif isinstance(generator, np.random.RandomState):
            generator.seed(own & 0xFFFFFFFF)
        else:
            bits = generator.bit_generator
            bits.state = type(bits)(own).state

    def state(self) -> Any:
        """Where it stands."""
        return _state(self.generator)

    def put(self, state: Any) -> None:
        """Have it stand there."""
        if isinstance(self.generator, random.Random):
            self.generator.setstate(state)
        elif isinstance(self.generator, np.random.RandomState):
            self.generator.set_state(state)
        else:
            self.generator.bit_generator.state = state


def mark_of(generator: Any) -> bytes:
    """A digest of where a generator stands."""
    digest = hashlib.blake2b(type(generator).__name__.encode(), digest_size=16)
    for part in _parts(_state(generator)):
        digest.update(part + b"\0")
    return digest.digest()


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key).encode()
            yield from _parts(item)
    elif isinstance(value, np.ndarray):
        yield value.tobytes()
    else:
        yield repr(value).encode()


class OwnGenerators:
    """Of one process; for the training thread alone."""

    def __init__(self) -> None:
        self._owned: list[OwnGenerator] = []
        self._left_alone: list[Any] = []
        self._is_kept: Callable[[Any], bool] = lambda generator: False

    def begin(self, is_kept: Callable[[Any], bool]) -> None:
        """A run begins, with none. ``is_kept``: whether one is part of the state just now."""
        self._owned, self._left_alone, self._is_kept = [], [], is_kept

    def leave_alone(self, found: Iterable[Any]) -> None:
        """Never seed these."""
        self._left_alone += found
        left = {id(one) for one in self._left_alone}
        self._owned = [one for one in self._owned if id(one.generator) not in left]

    def adopt(self, found: Iterable[Any]) -> None:
        """Seed these from now on."""
        for generator in found:
            if not self.owns(generator) and not any(generator is one for one in self._left_alone):
                self._owned.append(OwnGenerator(generator))

    def owns(self, generator: Any) -> bool:
        """Whether it is seeded here."""
        return any(generator is one.generator for one in self._owned)

    def seed(self, key: int) -> None:
        """Have all stand where ``key`` says."""
        for one in self._owned:
            if not self._is_kept(one.generator):
                one.seed(key)

    def states(self) -> list[tuple[OwnGenerator, Any]]:
        """Where all stand."""
        return [(one, one.state()) for one in self._owned]


def found_in(values: Iterable[Any]) -> list[Any]:
    """The generators among ``values``, in their attributes and items, and in all of a model's
    modules; each once."""
    held = list(values)
    waiting = deque((value, 0) for value in held)
    for value in held:
        if issubclass(type(value), Module):
            waiting += ((module, DEEPEST - 1) for module in value.modules())
    found: list[Any] = []
    seen: dict[int, Any] = {}
    while waiting:
        value, depth = waiting.popleft()
        if id(value) in seen:
            continue
        if is_generator(value):
            seen[id(value)] = value
            found.append(value)
        elif depth < DEEPEST and (inner := list(_inner(value))):
            seen[id(value)] = value
            waiting += ((item, depth + 1) for item in inner)
    return found


def _inner(value: Any) -> Iterator[Any]:
    kind = type(value)
    for base in _CONTAINERS:  # not by a subclass's own methods, which may do anything
        if issubclass(kind, base) and base.__len__(value) <= MOST_ITEMS:
            items = dict.values(value) if base is dict else base.__iter__(value)
            yield from (item for item in list(items) if type(item) not in _PLAIN)
    if kind not in _CONTAINERS:
        yield from list(attributes(value).values())


def attributes(value: Any) -> dict[str, Any]:
    """Those of an object that a script may have made; none of modules, classes and functions."""
    if issubclass(type(value), _NOT_LOOKED_INTO):
        return {}
    try:  # not by getattr, which a script's own __getattr__ may answer
        found = object.__getattribute__(value, "__dict__")
    except Exception:  # it has none, or a property of its own says something else
        return {}
    return found if type(found) is dict else {}


def reached_from(start: Any) -> list[Any]:
    """The generators that a function, or an object, may draw from: in what it holds, in what it has
    from around it, and in the globals that it and what it calls name."""
    found: list[Any] = []
    waiting = deque([start])
    seen: dict[int, Any] = {}
    for _ in range(MOST_REACHED):
        if not waiting:
            break
        value = waiting.popleft()
        if id(value) in seen:
            continue
        if is_generator(value):
            found.append(value)
        following = list(_following(value))
        if following or is_generator(value):
            seen[id(value)] = value
        waiting += following
    return found


def _following(value: Any) -> Iterator[Any]:
    kind = type(value)
    if kind is types.MethodType:
        yield value.__self__
        yield value.__func__
    elif kind is types.FunctionType:
        yield from value.__defaults__ or ()
        yield from (value.__kwdefaults__ or {}).values()
        for cell in value.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        names = value.__globals__
        yield from (names[name] for name in sorted(_names(value.__code__)) if name in names)
    elif issubclass(kind, type):
        module = str(type.__getattribute__(value, "__module__"))
        if module not in ("builtins", "numpy") and not module.startswith("mlx"):
            yield from vars(value).values()
    elif not issubclass(kind, (types.ModuleType, types.FrameType, Module)):
        yield from _inner(value)
        if attributes(value):
            yield type(value)


def _names(code: types.CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found
