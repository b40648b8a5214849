"""What a script draws from besides the global generators: generators of its own are adopted, and
what can't be is named.

A random key of MLX that the loop's body splits, a generator that the body has made, and arrays that
it changes are variables of one process: whoever joins later has others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any

import mlx.core as mx

from elasticd.train.states.namespace import Namespace
from elasticd.train.steps import randomness
from elasticd.train.steps.generators import (
    attributes,
    found_in,
    is_generator,
    mark_of,
    source_of,
)
from elasticd.train.steps.reach import MOST_REACHED, reached
from elasticd.train.steps.scriptnames import assigned_later, names, outside
from elasticd.train.steps.unkept import Unkept

BODIES = 10
"""So many of the loop's bodies are looked at for what they have made and changed."""
MOST_SPLITS = 16
"""Of one key in one body."""
_SPLIT_INTO = (2, 3, 4)


class OwnState:
    """Of one run; for the training thread alone. Each frame is only looked at, never kept."""

    def __init__(
        self, frame: FrameType, trained: tuple[Any, Any], kept: Namespace, data: Any, *others: Any
    ) -> None:
        """``frame`` has called ``Run(…)`` with ``trained``, which are a model and its optimizer,
        ``data`` and ``others``. What a stream draws from is its own affair: it may be drawn from
        ahead of need, by a thread of its own. What else it can come to, such as its trainer's, is
        told apart by :meth:`stream_proved`."""
        script = outside(frame)
        self._home = None if script is None else script.f_globals
        self._streams: tuple[Any, ...] = ()
        self._not_streams: list[Any] = []
        self._tracked: list[Any] = []
        self._bodies = 0
        self._keys: dict[str, mx.array] = {}
        self._made: dict[int, tuple[Any, bytes]] = {}
        """By id, those that a body has left: with where it stood then."""
        self._named: set[str] = set()
        self._unkept = Unkept(*trained, kept, data)
        if callable(data) and not hasattr(data, "__getitem__"):
            self._streams = (data,)
        randomness.own().begin(kept.generators)
        self._adopt([*names(frame, self._home).values(), trained[0], data, *others])
        found = reached(self._streams, is_generator).found
        self._marks = [(generator, mark_of(generator)) for generator in found]

    def stream_proved(self) -> None:
        """The stream was begun twice, and both gave the same samples: it doesn't draw from what
        stands where it stood, or makes it stand where it wants."""
        self._not_streams = [g for g, mark in self._marks if mark_of(g) == mark]
        randomness.own().take_back(self._not_streams)

    def tracked(self, thing: Any) -> None:
        """Its generators are its own affair: they stand where its stored state says. Those that it
        only leads to aren't, and are taken as they are before a state is loaded."""
        self._tracked.append(thing)
        self._unkept.keep(thing)
        self._adopt([thing])

    def _adopt(self, values: Iterable[Any]) -> bool:
        # The stream, and what is tracked, may have made others since they were looked at.
        randomness.own().leave_alone(found_in(self._tracked))
        not_its = {id(generator) for generator in self._not_streams}
        of_stream = reached(self._streams, is_generator).found
        randomness.own().leave_alone(g for g in of_stream if id(g) not in not_its)
        found, all_seen = reached(values, is_generator)
        randomness.own().adopt(found)
        return all_seen

    def loop_begins(self, frame: FrameType) -> list[str]:
        """What the script has made since is adopted, too. Returns what can't be promised, in
        sentences."""
        here = names(frame, self._home)
        all_seen = self._adopt(here.values())
        self._keys = _keys_of(here)
        self._unkept.loop_begins(here, assigned_later(frame, self._home))
        if all_seen:
            self._made = {id(g): (g, b"") for g in reached(here.values(), is_generator).found}
            return []
        self._bodies = BODIES  # it would take too long to look again behind each body
        return [
            f"the script's variables lead to more than {MOST_REACHED} objects: a random generator "
            "among those that weren't looked at would draw other numbers in a process that joins"
        ]

    def body_ends(self, frame: FrameType) -> list[str]:
        """What in the script's variables a process that joins won't have, each once, in a
        sentence."""
        self._bodies += 1
        if not self._keys and self._bodies > BODIES:
            return []
        here = names(frame, self._home)
        found = self._split(here)
        if self._bodies <= BODIES:
            found += self._kept_alive(here) + self._unkept.body_ends(here)
        return found

    def _split(self, here: Mapping[str, Any]) -> list[str]:
        found = []
        for name, before in list(self._keys.items()):
            now = _value_of(here, name)
            if now is before:
                continue
            del self._keys[name]
            if randomness.is_key(now) and _comes_from(before, now):
                short = name.rpartition(".")[2]
                found.append(
                    f"{name}: the loop's body splits this random key, and it is a variable of the "
                    "script's own: a process that joins later begins with the first one, and draws "
                    f"other numbers. Write run.state.{short} = mx.random.key(…) above the loop, "
                    f"and in it run.state.{short}, part = mx.random.split(run.state.{short})"
                )
            elif (
                randomness.is_key(now) and self._bodies < BODIES
            ):  # a body that makes it anew goes on so
                self._keys[name] = now
        return found

    def _kept_alive(self, here: Mapping[str, Any]) -> list[str]:
        found, own = [], randomness.own()
        before, self._made = self._made, {}
        sources = {
            id(source_of(g)): g for g in reversed(reached(here.values(), is_generator).found)
        }
        for generator in sources.values():  # the nearest of those that draw from the same bits
            if own.is_kept(generator) or own.owns(generator) or own.is_left_alone(generator):
                continue
            now = mark_of(generator)
            self._made[id(generator)] = generator, now
            if before.get(id(generator), (generator, now))[1] in (now, b""):
                continue
            name, short = _leads_to(generator, here)
            if name not in self._named:
                self._named.add(name)
                found.append(
                    f"{name}: the loop's body draws from this generator, and who joins later has "
                    f"another: make it above Run(…), or keep it as run.state.{short} and draw from "
                    "that"
                )
        return found


def _leads_to(generator: Any, here: Mapping[str, Any]) -> tuple[str, str]:
    """The variable, or the attribute, that it is, as far as a script can tell, and its last name;
    else the variable that leads to it."""
    for name, value in here.items():
        if value is generator:
            return name, name
    for name, value in here.items():
        for short, inner in attributes(value).items():
            if inner is generator:
                return f"{name}.{short}", short
    for name, value in here.items():
        if any(one is generator for one in reached([value], is_generator).found):
            return f"what {name} leads to", "rng"
    return "a generator", "rng"


def name_own(sentences: Iterable[str], *, aloud: bool) -> None:
    """Say on stderr what becomes of the script's state and may not be meant, if ``aloud``."""
    for sentence in sentences if aloud else ():
        print(f"elasticd: {sentence}", file=sys.stderr, flush=True)


def _keys_of(here: Mapping[str, Any]) -> dict[str, mx.array]:
    """Random keys by name, ``trainer.key`` too; each once."""
    found: dict[str, mx.array] = {}
    for name, value in here.items():
        inner = {} if randomness.is_key(value) else attributes(value)
        for path, key in ((name, value), *((f"{name}.{n}", v) for n, v in inner.items())):
            if randomness.is_key(key) and not any(key is one for one in found.values()):
                found[path] = key
    return found


def _value_of(here: Mapping[str, Any], path: str) -> Any:
    name, _, attribute = path.partition(".")
    value = here.get(name)
    return attributes(value).get(attribute) if attribute else value


def _comes_from(before: mx.array, now: mx.array) -> bool:
    """Whether ``now`` is what splitting ``before``, again and again, has led to: each time the
    first or the last part, as in ``key, part = split(key)``, and at the end any."""
    wanted = now.tolist()
    for place in (0, -1):
        key = before
        for _ in range(MOST_SPLITS):
            parts = [mx.random.split(key, num) for num in _SPLIT_INTO]
            if any(wanted in rows.tolist() for rows in parts):  # type: ignore[operator]
                return True
            key = parts[0][place]
    return False
