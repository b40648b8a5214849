"""What a later version says of a thing in fields that this one doesn't know.

Pure. A record that nodes merge and pass on keeps such fields as they are. So it loses nothing on
its way through a node that is not upgraded yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Protocol, TypeVar, cast


@dataclass(frozen=True, slots=True, eq=False)
class Unknown:
    """Fields and what they hold, by name. Equal are those that read the same: 1 is not 1.0."""

    fields: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Unknown:
        """Those fields; :data:`NOTHING` if there are none."""
        return cls(tuple(sorted(fields.items()))) if fields else NOTHING

    def over(self, older: Unknown) -> Unknown:
        """What both say; where both say something, what this one says."""
        if not older.fields:
            return self
        return Unknown.of({**dict(older.fields), **dict(self.fields)})

    def beside(self, other: Unknown) -> Unknown:
        """What both say, if neither is later: any order will do that all nodes have."""
        ours, theirs = dict(self.fields), dict(other.fields)
        chosen = {k: max(ours[k], theirs[k], key=repr) for k in ours.keys() & theirs.keys()}
        return Unknown.of({**ours, **theirs, **chosen})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown) and repr(self.fields) == repr(other.fields)

    def __hash__(self) -> int:
        return hash(repr(self.fields))


NOTHING = Unknown()
"""The default of the field that holds what is unknown. By it the codec tells that field."""


_ADDED = "added"


def added(default: Any) -> Any:
    """A field of such a record that came later: builds that don't know it are there, and keep it.

    Its default is not said, and a digest has what it holds as they have it. So a record is the same
    for them until the field says something. It may not go back to its default, which tells them
    nothing.
    """
    return field(default=default, repr=False, metadata={_ADDED: True})


@cache
def added_to(kind: type) -> Mapping[str, Any]:
    """The defaults of those fields, by name."""
    every: Any = kind
    return {each.name: each.default for each in fields(every) if _ADDED in each.metadata}


class Keeps(Protocol):
    """A frozen dataclass with such a field."""

    @property
    def unknown(self) -> Unknown: ...


K = TypeVar("K", bound=Keeps)


def later(one: K, other: K, order: Callable[[K], Any]) -> K:
    """The later of two records by ``order``, with what either of them says in unknown fields."""
    ours, theirs = order(one), order(other)
    if ours == theirs:
        first, unknown = one, one.unknown.beside(other.unknown)
    else:
        first, second = (one, other) if ours > theirs else (other, one)
        unknown = first.unknown.over(second.unknown)
    if unknown == first.unknown:
        return first
    return cast(K, replace(cast(Any, first), unknown=unknown))
