"""One word said again as another: what a trainer told its daemon, as the leader is told it."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

T = TypeVar("T")


def reworded(kind: type[T], said: Any, **besides: Any) -> T:
    """A ``kind`` with those fields that it shares with the dataclass ``said``, and those
    ``besides``. A field that both lack takes its default, so a field that is added to both words is
    passed on without a change here.

    Raises:
        TypeError: a field without a default is in neither.
    """
    has = {field.name for field in dataclasses.fields(said)} - besides.keys()
    names = [field.name for field in dataclasses.fields(kind) if field.name in has]  # type: ignore[arg-type]
    return kind(**{name: getattr(said, name) for name in names}, **besides)
