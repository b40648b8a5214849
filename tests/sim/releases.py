"""Builds of other versions, as far as they differ on the wire and on disk.

All of them run the present core. What an earlier build lacks is cut from what it says and writes,
and what it is told of that goes where its codec would put it: records keep it, messages pass it
over. A later build says and writes more than the present one can read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any

from elasticd.core.words.codec import Plain, to_plain
from elasticd.core.words.frames import Frame, decode_frame, encode_frame
from elasticd.core.words.messages import Message
from elasticd.core.words.records import JobRecord, NodeRecord, ProbeDigests, TrainerStatus, World
from elasticd.core.words.tables import Departing, Jobs, Summary
from elasticd.core.words.versions import NEWEST, OLDEST, SPOKEN, Spoken
from elasticd.core.words.views import Carry
from elasticd.core.words.worlds import Fault, Form, Holding
from elasticd.errors import ProtocolError
from elasticd.recovery.fitness import Unfit
from elasticd.recovery.unknown import Unknown, added_to
from elasticd.types import NodeId

LATER = NEWEST + 1
"""The protocol of the version to come."""
LATER_KINDS = (Summary, Departing)
"""In the story these messages came with it. A cluster can do without either."""
MARK = "later_"
"""How the fields begin that only the version to come knows."""

_KEEPERS = (JobRecord, NodeRecord, Unfit)
_SINCE_LITTLE: Mapping[type, tuple[str, ...]] = {
    JobRecord: ("offered", "served", *added_to(JobRecord)),
    Unfit: tuple(added_to(Unfit)),
    NodeRecord: tuple(added_to(NodeRecord)),
    Jobs: ("digests", "wanted", "asked"),
    TrainerStatus: ("came",),
    ProbeDigests: ("cpu_update",),
    Holding: ("ended", "proves", "walks", "chains", "on_cpu"),
    World: ("walks", "chains", "on_cpu", "whole", "spoilt", "tried", "fruitless", "furthest"),
    Form: ("secret",),
    Fault: ("stranger_at",),
}
"""What builds of this protocol have not known from its beginning."""


@dataclass(frozen=True, slots=True)
class Release:
    """One build."""

    name: str
    spoken: Spoken = SPOKEN
    lacks: Mapping[type, tuple[str, ...]] = field(default_factory=dict)
    """Fields that it doesn't know, by dataclass."""

    @property
    def is_later(self) -> bool:
        return self.spoken.newest >= LATER

    @property
    def knows_secrets(self) -> bool:
        """Whether the ranks of its worlds can show one another that they know one."""
        return Form not in self.lacks

    @property
    def knows_roles(self) -> bool:
        """Whether its nodes do what elasticd.toml says, and know it of others: else all train."""
        return NodeRecord not in self.lacks

    @property
    def says_who_came(self) -> bool:
        """Whether its daemons tell the leader that a trainer's thread has taken up its world."""
        return TrainerStatus not in self.lacks

    def knows(self, message: Message | None) -> bool:
        return self.is_later or not isinstance(message, LATER_KINDS)

    def says(self, frame: Frame) -> dict[str, Plain]:
        """A frame as this build encodes it. One that is carried inside was cut before."""
        plain = encode_frame(self.cut(frame))
        said = plain["message"]
        if self.is_later and said is not None:
            said[f"{MARK}more"] = {"how": "at leisure", "levels": [1, 2.5, None]}
        return plain

    def hears(self, frame: Frame, me: NodeId, boot: str) -> None:
        """A frame comes to the run ``boot`` of the daemon of the node ``me``.

        Raises:
            ProtocolError: it is of a kind that this build doesn't know, or carries such a one here.
        """
        message = frame.message
        if isinstance(message, Carry) and message.target == me:
            inner = decode_frame(message.frame)
            # What was meant for the daemon before, maybe of another version, is passed over.
            if inner.boots[1] == boot:
                self.hears(inner, me, boot)
        if not self.knows(message):
            raise ProtocolError(f"unknown message {type(message).__name__!r}")

    def cut(self, value: Any) -> Any:
        """``value`` without what this build doesn't know; what a record keeps stays."""
        return self._changed(value, _without) if self.lacks else value

    def read(self, value: Any) -> Any:
        """``value`` as this build reads it: what it doesn't know is kept or passed over."""
        return self._changed(value, _kept_aside) if self.lacks else value

    def _changed(self, value: Any, change: Callable[[Any, tuple[str, ...]], Any]) -> Any:
        if isinstance(value, tuple):
            found = [self._changed(each, change) for each in value]
            same = all(new is old for new, old in zip(found, value, strict=True))
            return value if same else tuple(found)
        if not is_dataclass(value) or isinstance(value, type):
            return value
        news = {}
        for name in _names(type(value)):
            old = getattr(value, name)
            if isinstance(old, tuple) or is_dataclass(old):
                new = self._changed(old, change)
                if new is not old:
                    news[name] = new
        value = replace(value, **news) if news else value
        lacks = self.lacks.get(type(value), ())
        return change(value, lacks) if lacks else value


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    found = {}
    for each in fields(kind):
        if each.default_factory is not MISSING:
            found[each.name] = each.default_factory()
        elif each.default is not MISSING:
            found[each.name] = each.default
    return found


def _without(value: Any, lacks: tuple[str, ...]) -> Any:
    kind: Any = type(value)
    usual = _defaults(kind)
    return replace(value, **{name: usual[name] for name in lacks})


def _kept_aside(value: Any, lacks: tuple[str, ...]) -> Any:
    if not isinstance(value, _KEEPERS):
        return _without(value, lacks)
    kind: Any = type(value)
    usual = _defaults(kind)
    said = {name: getattr(value, name) for name in lacks}
    aside = {name: to_plain(held) for name, held in said.items() if held != usual[name]}
    unknown = Unknown.of({**aside, **dict(value.unknown.fields)})
    return replace(_without(value, lacks), unknown=unknown)


BEFORE = Release("before", lacks=_SINCE_LITTLE)
PRESENT = Release("present")
NEXT = Release("next", Spoken(OLDEST, LATER))
ANCIENT = Release("ancient", Spoken(OLDEST - 2, OLDEST - 1), _SINCE_LITTLE)
"""Too old to speak with any other."""
LADDER = (BEFORE, PRESENT, NEXT)
"""These work with one another."""
RELEASES = {each.name: each for each in (*LADDER, ANCIENT)}
