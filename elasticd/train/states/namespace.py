"""``run.state``: what a script keeps from step to step, by attribute."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from elasticd.errors import MismatchError, UsageError
from elasticd.train.states.apart import LiveTree
from elasticd.train.states.trees import Generators, take_apart


class Namespace(LiveTree):
    """What is assigned here is part of the state: checkpoints hold it, and a replacement is given
    it. Numbers, strings, arrays, dicts, lists and tuples of them; and random generators. Types that
    wouldn't come back as they are, subclasses of these too, raise UsageError.

    Read it through ``run.state``: when another state comes, the attributes are new objects. Names
    that begin with an underscore aren't stored.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}
        self._read: set[str] = set()
        """Names that were asked for since somebody has emptied it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        if hasattr(Namespace, name):
            raise UsageError(f"run.state.{name} has another meaning: take another name")
        if not _is_generator(name, value):
            take_apart(value, f"run.state.{name}", {})
        self._kept[name] = value

    def __getattr__(self, name: str) -> Any:
        try:
            self.__dict__["_read"].add(name)
            return self.__dict__["_kept"][name]
        except KeyError:
            raise AttributeError(
                f"run.state has no {name!r}; assign it between Run(…) and the loop, where it "
                "counts at step 0 only"
            ) from None

    def __delattr__(self, name: str) -> None:
        if name not in self._kept:
            raise AttributeError(f"run.state has no {name!r}")
        del self._kept[name]

    def __contains__(self, name: str) -> bool:
        self._read.add(name)
        return name in self._kept

    def generators(self) -> list[Any]:
        """Those that are kept here."""
        return [value for value in self._kept.values() if type(value) in Generators]

    def _live(self) -> Any:
        return self._kept

    def __repr__(self) -> str:
        return f"run.state({', '.join(sorted(self._kept))})"

    def state_dict(self) -> dict[str, Any]:
        """All of it, as plain values and arrays."""
        self._read.update(self._kept)
        found: dict[str, Any] = {"values": {}, "generators": {}}
        for name, value in self._kept.items():
            if _is_generator(name, value):
                found["generators"][name] = _generator_state(value)
            else:
                found["values"][name] = value
        return found

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Have what :meth:`state_dict` told of, and nothing else."""
        made = {
            name: _generator(name, state, self._kept.get(name))
            for name, state in saved["generators"].items()
        }
        self._kept = {**saved["values"], **made}


_NONE_SPAWNED = {"n_children_spawned": 0}


def _is_generator(name: str, value: Any) -> bool:
    if type(value) not in Generators:
        return False
    if isinstance(value, np.random.Generator):
        kind = type(value.bit_generator)
        if getattr(np.random, kind.__name__, None) is not kind:
            raise UsageError(
                f"run.state.{name} is a generator of {kind.__name__}, which can't be stored: "
                "take one of NumPy's own"
            )
    return True


def _generator_state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return {"kind": "python", "state": generator.getstate()}
    found = {"kind": "numpy", "state": generator.bit_generator.state}
    seeds = generator.bit_generator.seed_seq
    if type(seeds) is np.random.SeedSequence and seeds.n_children_spawned:
        found["spawns"] = seeds.state  # only then, since an earlier build may compare its own
    return found


def _generator(name: str, saved: Mapping[str, Any], here: Any) -> Any:
    """The one that is ``here``, if it is of that kind: the script may draw from it by another name,
    as behind ``run.state.rng = rng``."""
    if saved["kind"] == "python":
        made = here if type(here) is random.Random else random.Random()
        made.setstate(saved["state"])
        return made
    state = saved["state"]
    kind = getattr(np.random, str(state["bit_generator"]), None)
    if kind is None:
        raise MismatchError(f"run.state.{name} is a generator that this NumPy doesn't have")
    spawns = saved.get("spawns")
    generator = here
    if type(here) is not np.random.Generator or type(here.bit_generator) is not kind:
        generator = np.random.Generator(kind(np.random.SeedSequence(**(spawns or {}))))
    generator.bit_generator.state = state
    seeds: Any = generator.bit_generator.seed_seq
    if type(seeds) is np.random.SeedSequence:  # it has no method for that, but may begin anew
        np.random.SeedSequence.__init__(seeds, **(spawns or {**seeds.state, **_NONE_SPAWNED}))
    return generator
