"""Random generators of the script's own: they are seeded wherever the global ones are.

``rng = np.random.default_rng(7)`` above the loop, and ``rng.normal()`` in its body, in a loss or in
a dataset: where such a generator stands would depend on the history of its process, and a process
that joins has another. So what it draws is made a function of (its own seed, seed, where we are).
So are the children that it, or a ``SeedSequence``, spawns: how many there were before is forgotten.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import mlx.optimizers as optim
import numpy as np
from mlx.nn.layers.base import Module

from elasticd.train.steps.reach import MOST_ITEMS, is_global

DEEPEST = 2
"""``rng``, ``sampler.rng`` and ``buffer.sampler.rng`` of what is tracked are its own affair."""

_BASES = (random.Random, np.random.Generator, np.random.RandomState)
_DRAWS = ("random", "getrandbits", "seed", "getstate", "setstate")
_BITS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
_CONTAINERS: tuple[Any, ...] = (dict, list, tuple)
_PLAIN = (int, float, complex, bool, str, bytes, type(None), np.ndarray)
_MOST_CHILDREN = 0x3FFFFFFF
"""Their numbers have 32 bits."""
_CALLED = (types.FunctionType, types.MethodType)
_NOT_LOOKED_INTO = (types.ModuleType, types.FrameType, type, *_CALLED, optim.Optimizer)
"""An optimizer's own generators are part of the state."""


def is_generator(value: Any) -> bool:
    """Whether it is a generator that can be seeded, or spawns such, and none of the global ones."""
    kind = type(value)
    if is_global(value):
        return False
    if issubclass(kind, random.Random):  # a helper more, but the numbers are Python's
        return all(getattr(kind, name) is getattr(random.Random, name) for name in _DRAWS)
    if issubclass(kind, np.random.Generator):
        return _is_numpys(source_of(value))
    if kind is np.random.RandomState:
        return _is_numpys(source_of(value))
    return kind is np.random.SeedSequence or _is_numpys(value)


def _is_numpys(bits: Any) -> bool:
    kind = type(bits)
    return kind.__name__ in _BITS and getattr(np.random, kind.__name__, None) is kind


def source_of(generator: Any) -> Any:
    """What it draws from, which several may share."""
    if isinstance(generator, np.random.RandomState):
        return generator._bit_generator
    return generator.bit_generator if isinstance(generator, np.random.Generator) else generator


def state_of(generator: Any) -> Any:
    """Where it stands."""
    if isinstance(generator, random.Random):
        return random.Random.getstate(generator)
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    if isinstance(generator, np.random.SeedSequence):
        return generator.n_children_spawned
    return source_of(generator).state


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
            random.Random.seed(generator, own)
        elif isinstance(generator, np.random.SeedSequence):
            _have_spawned(generator, own & _MOST_CHILDREN)
        elif not isinstance(generator, np.random.RandomState):
            bits = source_of(generator)
            bits.state = type(bits)(own).state
        elif isinstance(source_of(generator), np.random.MT19937):
            generator.seed(own & 0xFFFFFFFF)
        else:
            bits = source_of(generator)
            bits.state = type(bits)(own).state
            if generator.get_state(legacy=False)["has_gauss"]:
                generator.standard_normal()  # which was drawn before

    def state(self) -> Any:
        """Where it stands."""
        return state_of(self.generator)

    def put(self, state: Any) -> None:
        """Have it stand there."""
        generator = self.generator
        if isinstance(generator, random.Random):
            random.Random.setstate(generator, state)
        elif isinstance(generator, np.random.SeedSequence):
            _have_spawned(generator, state)
        elif not isinstance(generator, np.random.RandomState):
            source_of(generator).state = state
        elif isinstance(source_of(generator), np.random.MT19937):
            generator.set_state(state)
        else:
            source_of(generator).state = {k: v for k, v in state.items() if "gauss" not in k}


def _have_spawned(seeds: np.random.SeedSequence, children: int) -> None:
    """Its next child is the one with this number. It has no method for that, but may begin anew."""
    np.random.SeedSequence.__init__(
        seeds,
        seeds.entropy,
        spawn_key=seeds.spawn_key,
        pool_size=seeds.pool_size,
        n_children_spawned=children,
    )


def mark_of(generator: Any) -> bytes:
    """A digest of where a generator stands."""
    kind: Any = next((base for base in _BASES if isinstance(generator, base)), type(generator))
    if _is_numpys(generator):
        kind = np.random.Generator  # several may draw from these bits
    digest = hashlib.blake2b(kind.__name__.encode(), digest_size=16)
    whole = state_of(generator)
    if isinstance(generator, np.random.SeedSequence):
        whole = [generator.entropy, generator.spawn_key, generator.pool_size]
    for part in _parts(whole):
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
    """Of one process; for the training thread alone. Two that draw from the same bits are one."""

    def __init__(self) -> None:
        self._owned: list[OwnGenerator] = []
        self._left_alone: list[Any] = []
        self._kept: Callable[[], Iterable[Any]] = list

    def begin(self, kept: Callable[[], Iterable[Any]]) -> None:
        """A run begins, with none. ``kept``: those that are part of the state just now."""
        self._owned, self._left_alone, self._kept = [], [], kept

    def leave_alone(self, found: Iterable[Any]) -> None:
        """Never seed these."""
        self._left_alone += found
        left = _sources(self._left_alone)
        self._owned = [one for one in self._owned if id(source_of(one.generator)) not in left]

    def adopt(self, found: Iterable[Any]) -> None:
        """Seed these from now on."""
        known = _sources(self._left_alone) | {id(source_of(one.generator)) for one in self._owned}
        for generator in found:
            if id(source_of(generator)) not in known:
                known.add(id(source_of(generator)))
                self._owned.append(OwnGenerator(generator))

    def take_back(self, found: Iterable[Any]) -> None:
        """Seed these, which were left alone."""
        back = list(found)
        self._left_alone = [one for one in self._left_alone if not any(one is b for b in back)]
        self.adopt(back)

    def is_left_alone(self, generator: Any) -> bool:
        """Whether something else than its seed says where it stands."""
        return id(source_of(generator)) in _sources(self._left_alone)

    def owns(self, generator: Any) -> bool:
        """Whether it is seeded here."""
        return any(source_of(generator) is source_of(one.generator) for one in self._owned)

    def is_kept(self, generator: Any) -> bool:
        """Whether it is part of the state just now."""
        return id(source_of(generator)) in _sources(self._kept())

    def seed(self, key: int) -> None:
        """Have all stand where ``key`` says."""
        kept = _sources(self._kept()) if self._owned else set()
        for one in self._owned:
            if id(source_of(one.generator)) not in kept:
                one.seed(key)

    def states(self) -> list[tuple[OwnGenerator, Any]]:
        """Where all stand."""
        return [(one, one.state()) for one in self._owned]


def _sources(generators: Iterable[Any]) -> set[int]:
    """Of what they draw from, and of what their children come from: the ids."""
    found = set()
    for generator in generators:
        source = source_of(generator)
        found |= {id(source), id(getattr(source, "seed_seq", source))}
    return found


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
        yield from _slots(value)


def _slots(value: Any) -> Iterator[Any]:
    for base in type(value).__mro__:
        for slot in list(vars(base).values()):
            if type(slot) is types.MemberDescriptorType and not _is_closed(value):
                with contextlib.suppress(AttributeError):  # not assigned yet
                    yield slot.__get__(value)


def _is_closed(value: Any) -> bool:
    return issubclass(type(value), _NOT_LOOKED_INTO)


def attributes(value: Any) -> dict[str, Any]:
    """Those of an object that a script may have made; none of modules, classes and functions."""
    if _is_closed(value):
        return {}
    try:  # not by getattr, which a script's own __getattr__ may answer
        found = object.__getattribute__(value, "__dict__")
    except Exception:  # it has none, or a property of its own says something else
        return {}
    return found if type(found) is dict else {}
