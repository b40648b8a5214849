"""What a daemon and a reducer say to each other (docs/protocols.md §1).

A module of its own: a reducer starts for each world of each rank, and to make the words of a
trainer, which it never uses, took it a fifth of its start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elasticd.core.words.codec import Words
from elasticd.core.words.engines import EngineOrder
from elasticd.core.words.processes import Alive
from elasticd.types import Tag


@dataclass(frozen=True, slots=True)
class ReducerWarm:
    """MLX is imported: it can form a ring at once."""

    kind: ClassVar = "ready"
    proves: bool = False
    """It can show its neighbours that it knows a world's secret. One of before can't."""
    walks: bool = False
    """It can make exact sums along the ring. One of before gathers all parts."""
    chains: bool = False
    """It can make fast sums along the ring, too. One of before has MLX's ``all_sum`` make them."""


@dataclass(frozen=True, slots=True)
class ReducerHere:
    """To a daemon that was started again: the ring that it was told to form, and whether it is."""

    kind: ClassVar = "here"
    generation: Tag | None
    formed: bool


@dataclass(frozen=True, slots=True)
class ReducerFormed:
    kind: ClassVar = "formed"
    generation: Tag


@dataclass(frozen=True, slots=True)
class ReducerBroken:
    kind: ClassVar = "broken"
    generation: Tag
    evidence: str
    stranger_at: int = -1
    """The rank at whose address somebody else than the rank before it seems to be; -1: none."""
    wrong: bool = False
    """That one has shown something wrong; else it has shown nothing."""


FromReducer = ReducerWarm | ReducerHere | ReducerFormed | ReducerBroken

ToReducer = Alive | EngineOrder

FROM_REDUCER: Words[FromReducer] = Words(FromReducer, rows=True)
TO_REDUCER: Words[ToReducer] = Words(ToReducer, rows=True)
