"""What each rank has of its own: ``run.track(name, thing, per_rank=True)``.

A process that has such things has a place, a number that it keeps whatever its rank becomes. What
all have is told to all in each step, before it is reduced. What was told, by place, is part of the
state of that step, the same everywhere: checkpoints hold it, and newcomers are given it. It is what
the loop's body of the step before has left. A process that lives keeps its own. The place of one
that is gone is taken, with what it left, by the next that comes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import mlx.core as mx
import msgpack
import numpy as np

from elasticd.errors import UsageError
from elasticd.train.states.apart import LiveTree
from elasticd.train.states.tracked import Tracked
from elasticd.train.states.trees import dtype_name, put_together, take_apart

MOST_BYTES = 1 << 20
"""Of one rank, as it is told to the others in each step."""
NOTHING, NEW, FIRST_PLACE = 0, 1, 2
"""What a process says of itself: it has no such things; it has, and no place yet; or its place,
counted from the last of these."""


def places(said: Sequence[int], left: Collection[int]) -> list[int | None]:
    """The place of each rank, by what all ranks ``said``; ``left`` are those of which something is
    known. A place that two claim is the lower rank's."""
    found: list[int | None] = [None] * len(said)
    for rank, word in enumerate(said):
        if word >= FIRST_PLACE and word - FIRST_PLACE not in found:
            found[rank] = word - FIRST_PLACE
    free = sorted(set(left) - set(found))
    for rank, word in enumerate(said):
        if word == NEW and free:
            found[rank] = free.pop(0)
    for rank, word in enumerate(said):
        if word != NOTHING and found[rank] is None:
            taken = {*left, *found}
            found[rank] = next(place for place in range(len(taken) + 1) if place not in taken)
    return found


class Ranks(LiveTree):
    """Of one process; for the training thread alone. Its ``state_dict`` is what all have told,
    which is the same on every rank."""

    def __init__(self) -> None:
        self._things: dict[str, Tracked] = {}
        self._place: int | None = None
        self._places: list[int | None] = []
        """Of all ranks of the present world."""
        self._told: dict[int, mx.array] = {}
        self._held: bytes | None = None
        """Its own, as the last body that counted has left it."""
        self._begun: bytes | None = None
        """As the script has made it above its loop."""

    # What the script does.

    def track(self, name: str, thing: Any) -> None:
        """Raises UsageError if it can't be stored."""
        self._things[name] = Tracked.of(name, thing)

    def __contains__(self, name: str) -> bool:
        return name in self._things

    def hold(self) -> None:
        """The loop's body has ended, and counts.

        Raises:
            UsageError: a thing can't be stored, or is too big.
        """
        if self._things:
            self._held = self._packed()
            self._begun = self._held if self._begun is None else self._begun

    def put_back(self) -> None:
        """The loop's body has ended, and doesn't count."""
        if self._held is None:
            self.hold()
        else:
            self._put(self._held)

    def go_back(self) -> None:
        """The state is one of an earlier step: have what was told then; if nothing was, none of the
        bodies that have made ours counts, and it is as it began."""
        told = self._told.get(self._place) if self._place is not None else None
        mine = self._begun if told is None else _bytes(told)
        if mine is not None:
            self._put(mine)

    # What all members do.

    @property
    def word(self) -> int:
        """What there is to say where a world begins."""
        if not self._things:
            return NOTHING
        return NEW if self._place is None else FIRST_PLACE + self._place

    def take_place(self, said: Sequence[int], rank: int) -> None:
        """A world begins, and all its ranks have ``said`` their word. Who is new has from now on
        what somebody has left."""
        self._places = places(said, self._told)
        mine, new = self._places[rank], self._place is None
        self._place = mine
        if new and mine in self._told:
            self._put(_bytes(self._told[mine]))

    @property
    def anybody(self) -> bool:
        """Whether any rank of this world has such things."""
        return any(place is not None for place in self._places)

    @property
    def message(self) -> bytes:
        """To the others in this step; nothing where they know it."""
        if self._place is None or self._held is None:
            return b""
        told = self._told.get(self._place)
        return b"" if told is not None and _bytes(told) == self._held else self._held

    def hear(self, messages: Sequence[bytes]) -> dict[int, mx.array]:
        """What is known of all places with these, by rank."""
        news = {
            place: mx.array(np.frombuffer(message, np.uint8))
            for place, message in zip(self._places, messages, strict=True)
            if place is not None and message
        }
        return self._told | news

    @property
    def told(self) -> Mapping[int, mx.array]:
        """What is part of the state, by place."""
        return self._told

    def told_under(self, name: str) -> list[Any]:
        """What was told of each rank's thing of that name, by place; None: it has none, or was told
        of none yet."""
        return [_content_of(name, _bytes(told)) for told in self._told.values()]

    def believe(self, told: Mapping[int, mx.array]) -> None:
        """A step is reduced in which this was known."""
        self._told = dict(sorted(told.items()))

    # As the state reads and writes it.

    def state_dict(self) -> dict[int, mx.array]:
        return self._told

    def load_state_dict(self, saved: Mapping[int, mx.array]) -> None:
        self.believe(saved)

    # The things.

    def _live(self) -> Any:
        return [thing.thing for thing in self._things.values()]

    def _packed(self) -> bytes:
        tensors: dict[str, mx.array] = {}
        plain: dict[str, Any] = {}
        sizes: dict[str, int] = {}
        for name, thing in sorted(self._things.items()):
            before = sum(array.nbytes for array in tensors.values())
            plain[name] = take_apart(thing.get(), f"user/{name}/", tensors)
            arrays = sum(array.nbytes for array in tensors.values()) - before
            sizes[name] = arrays + len(json.dumps(plain[name]))
        if sum(sizes.values()) > MOST_BYTES:
            name = max(sizes, key=lambda name: sizes[name])
            raise UsageError(
                f"run.track({name!r}, …, per_rank=True): it has {sizes[name]} bytes, and all that "
                f"a rank tracks so may have {MOST_BYTES}, since it is told to the others in each "
                "step. Track what is small, such as a position, and make the rest of it again"
            )
        rows = [[path, dtype_name(a), list(a.shape), _content(a)] for path, a in tensors.items()]
        packed: bytes = msgpack.packb([json.dumps(plain), rows])
        return packed

    def _put(self, packed: bytes) -> None:
        """Have these values. What the script no longer tracks is passed over."""
        plain, rows = msgpack.unpackb(packed)
        tensors = {path: _array(*row) for path, *row in rows}
        for name, content in json.loads(plain).items():
            if name in self._things:
                self._things[name].put(put_together(content, tensors))
        self._held = packed


def _content_of(name: str, packed: bytes) -> Any:
    plain, rows = msgpack.unpackb(packed)
    things = json.loads(plain)
    if name not in things:
        return None
    return put_together(things[name], {path: _array(*row) for path, *row in rows})


def _bytes(told: mx.array) -> bytes:
    return np.array(told).tobytes()


def _content(array: mx.array) -> bytes:
    return _bytes(mx.contiguous(array).reshape(-1).view(mx.uint8)) if array.size else b""


def _array(dtype: str, shape: Sequence[int], content: bytes) -> mx.array:
    kind = mx.bool_ if dtype == "bool" else getattr(mx, dtype)
    if not content:
        return mx.zeros(shape, kind)
    return mx.array(np.frombuffer(content, np.uint8)).view(kind).reshape(shape)
