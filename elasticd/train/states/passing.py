"""What forward passes make of the Python values of modules.

A flag that says that a buffer is set up, a count of passes: each grain's pass finds these as they
were when the step began, as it does with arrays. What the job's first pass changed is summed with
the grains (layout.py): what all of them have left alike is part of the step's state. Anything else
is that pass's own, a length say: the loop's body still sees what the last pass has left, and behind
the body it is gone.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator
from typing import Any

import mlx.core as mx
import numpy as np

from elasticd.errors import UsageError
from elasticd.train.states.attributes import ABSENT, ATTRIBUTES, Attributes, alike, remembered
from elasticd.train.states.holders import FROZEN, TRAINING, OfModule
from elasticd.train.states.trees import put_together, take_apart

MOST_BYTES = 64
"""Of a value's text; what is longer is no part of the state."""
_UNFIT = b"\xff" * MOST_BYTES
"""Stands for it: no text has such bytes."""
_MODES = (FROZEN, TRAINING)
"""A loss that sets these sets them in each pass."""


class PassValues:
    """Of one process; for the training thread alone. A value is called ``attributes/holder:name``,
    as an array of it is in the sums."""

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes
        self._held: dict[str, _Held] = {}
        """As it was when the step began."""
        self._under_way = False
        self._left: dict[str, Any] = {}
        """What the last pass has changed."""
        self._readable: set[str] = set()
        """Of these, what the loop's body is shown: nothing private, and nothing that goes with
        caches that the pass has made."""
        self._shown: dict[str, tuple[Any, Any]] = {}
        """What the loop's body finds there: as it was before, and as it is shown."""
        self._summed: dict[str, Any] = {}
        """What is summed, as the last update left it."""
        self._said: set[str] = set()
        self._news: list[str] = []

    # Around passes.

    def step_begins(self) -> None:
        """What is there now, each pass finds."""
        old, now = self._held, self._attributes.of_modules()
        self._held = {
            path: old[path] if path in old and old[path].is_still(holder) else _Held(holder)
            for path, holder in now.items()
        }
        self._under_way = True

    def restore(self) -> None:
        """Put it in place."""
        for held in self._held.values() if self._under_way else ():
            for name in held.changed():
                held.put_back(name)

    def forget(self) -> None:
        """The step's passes are over."""
        self._under_way = False

    def first_ends(self, come: Collection[str], caches: Collection[str]) -> list[str]:
        """The process's first pass has ended: the values that it has changed. ``come``: arrays that
        it made for all later passes. Values beside these are committed with them. ``caches``:
        arrays that it made for itself. Values beside these are its own, too."""
        early = {self._module_of(path) for path in come}
        own = {self._module_of(path) for path in caches}
        found = []
        for path, held in list(self._held.items()):
            for name in held.changed(modes=True):
                if name in _MODES:
                    self._attributes.leave_out(path, name)
                elif held.is_cache(name):
                    continue
                elif path in early:
                    self._attributes.early.add(f"{path}:{name}")
                    held.commit(name)
                elif path not in own:
                    found.append(f"{ATTRIBUTES}{path}:{name}")
        return found

    def _module_of(self, array: str) -> str:
        """The holder of an array, perhaps in lists and dicts, of the model's."""
        path = f"model.{array}"
        while path not in self._held:
            path = path.rpartition(".")[0]
        return path

    def pass_ends(self, summed: Collection[str], caches: Collection[str]) -> None:
        """A pass has ended, in which these are ``summed``; it has made ``caches`` for itself."""
        own = {self._module_of(path) for path in caches}
        self._left, self._readable = {}, set()
        for path, held in self._held.items():
            for name in held.changed():
                full = f"{ATTRIBUTES}{path}:{name}"
                self._left[full] = held.now(name)
                if name.startswith("_") or path in own:
                    continue
                self._readable.add(full)
                if full not in summed:
                    self._say(full, "which the job's first pass left alone, or made otherwise")

    # What is summed.

    def before(self, paths: Collection[str]) -> dict[str, mx.array]:
        """What passes find, as arrays."""
        return {path: _written(self._found(path)) for path in paths}

    def after(self, paths: Collection[str]) -> dict[str, mx.array]:
        """What the last pass has left."""
        left = self._left
        return {p: _written(left[p] if p in left else self._found(p)) for p in paths}

    def _found(self, path: str) -> Any:
        holder, _, name = path.removeprefix(ATTRIBUTES).partition(":")
        held = self._held.get(holder)
        return ABSENT if held is None else held.before.get(name, ABSENT)

    def unlike(self, paths: Collection[str]) -> None:
        """The grains of a step have left different things there."""
        for path in paths:
            self._say(path, "and the grains of a step leave different things there, or long ones")

    # Around what the script does between passes.

    def show(self) -> None:
        """What the last pass has left can be read."""
        for path, value in self._left.items():
            if path not in self._readable:
                continue
            now = self._attributes.value(path)
            if not alike(now, value):
                self._attributes.set_value(path, value)
                self._shown[path] = now, remembered(value)

    def hide(self) -> None:
        """It goes, unless the script has put something else there."""
        shown, self._shown = self._shown, {}
        for path, (before, value) in shown.items():
            if alike(self._attributes.value(path), value):
                self._attributes.set_value(path, before)

    def updated(self, summed: Collection[str], changed: Collection[str]) -> None:
        """The update was made, with what was ``changed``."""
        self._left = {path: value for path, value in self._left.items() if path not in changed}
        self._summed = {path: remembered(self._attributes.value(path)) for path in summed}

    def body_ends(self) -> None:
        """What is summed passes alone may change: a body that only one rank has would part them."""
        self.hide()
        for path, value in self._summed.items():
            if not alike(self._attributes.value(path), value):
                self._attributes.set_value(path, value)
                self._say(path, "and so does the loop's body: what it leaves there is undone")

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """What is summed is behind it as it was before."""
        before = {path: remembered(self._attributes.value(path)) for path in self._summed}
        try:
            yield
        finally:
            for path, value in before.items():
                if not alike(self._attributes.value(path), value):
                    self._attributes.set_value(path, value)

    # What to say.

    def _say(self, path: str, why: str) -> None:
        if path not in self._said:
            self._said.add(path)
            name = path.removeprefix(ATTRIBUTES).replace(":", ".")
            self._news.append(
                f"a forward pass changes {name}, {why}. Each pass finds there what was there when "
                "the step began. What later steps need, let every pass assign alike, or change it "
                "in the loop's body (docs/writing-jobs.md, What a forward pass changes)"
            )

    def news(self) -> list[str]:
        """What is to be said, each once."""
        news, self._news = self._news, []
        return news


class _Held:
    """The values of one module, as they are now."""

    def __init__(self, holder: OfModule) -> None:
        self.holder = holder
        self._values = holder.values()
        self._things = dict(self._values)
        self._away = frozenset(name for name in holder.names() if name not in self._values)
        self.before = {name: remembered(value) for name, value in self._values.items()}

    def is_still(self, holder: OfModule) -> bool:
        """Whether that has the same values as this."""
        return holder is self.holder and holder.values() is self._values

    def changed(self, *, modes: bool = False) -> list[str]:
        """Names of values that are others now, or gone. Not of what turned into something else, an
        array say, or was such a thing."""
        now = self.holder.values()
        if now is self._values:
            return []
        found = [
            name
            for name, value in now.items()
            if name not in self._away
            and not (name in self.before and alike(self.before[name], value))
        ]
        found += [n for n in self.before if n not in now and self.holder.found(n) is None]
        if not found and now.keys() == self.before.keys():
            self._values = now  # the same again
        return [name for name in found if modes or name not in _MODES]

    def is_cache(self, name: str) -> bool:
        """Whether it is a private dict, in which each pass has its own (passcaches.py)."""
        return name.startswith("_") and type(self._things.get(name)) is dict

    def commit(self, name: str) -> None:
        """What is there now is what all later passes find."""
        now = self.holder.values()
        if name in now:
            self._things[name], self.before[name] = now[name], remembered(now[name])
        else:
            del self.before[name]

    def now(self, name: str) -> Any:
        return remembered(self.holder.values().get(name, ABSENT))

    def put_back(self, name: str) -> None:
        """The same list or dict, as others may hold it, with what was in it."""
        if name not in self.before:
            self.holder.drop(name)
            return
        thing, value = self._things[name], remembered(self.before[name])
        if isinstance(thing, list):
            thing[:] = value
        elif isinstance(thing, dict):
            thing.clear()
            thing.update(value)
        elif isinstance(thing, np.ndarray):
            thing[...] = value
        self.holder.put(name, thing)


def _written(value: Any) -> mx.array:
    text = b""
    if value is not ABSENT:
        tensors: dict[str, mx.array] = {}
        try:
            text = json.dumps(take_apart(value, "", tensors)).encode()
        except UsageError:
            text = _UNFIT
        if tensors or len(text) > MOST_BYTES:
            text = _UNFIT
    return mx.array(np.frombuffer(text.ljust(MOST_BYTES, b"\0"), np.uint8))


def is_value(path: str) -> bool:
    """Whether the name of summed state is that of a value."""
    return path.startswith(ATTRIBUTES)


def is_fit(array: mx.array) -> bool:
    """Whether it stands for a value."""
    return bytes(np.array(array)) != _UNFIT


def read(array: mx.array) -> Any:
    """The value that an array of the sums stands for; ``ABSENT``: none."""
    text = bytes(np.array(array)).rstrip(b"\0")
    return put_together(json.loads(text), {}) if text else ABSENT
