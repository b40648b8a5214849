"""The words of MLX's ring alone, which only its engine makes sense of (core/engines/ring.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from elasticd.types import NO_SECRET, JobId, Reduction, Secret, Tag

# --- between the leader's side and the members' ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listening:
    """The member's reducer listens."""

    job: JobId
    generation: Tag


@dataclass(frozen=True, slots=True)
class Go:
    """To the last rank: all others listen."""

    job: JobId
    generation: Tag


@dataclass(frozen=True, slots=True)
class Continue:
    """To the first rank: the last one listens, so let the stopped reducer go on."""

    job: JobId
    generation: Tag


# --- what a reducer is told -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FormRing:
    """Join this ring; chunk memory and data socket come as descriptors."""

    kind: ClassVar = "form"
    generation: Tag
    rank: int
    size: int
    hosts: tuple[str, ...]
    reduction: Reduction
    secret: Secret = field(default=NO_SECRET, repr=False)
    """By which the ranks know one another; empty: a rank that knows none is among them."""
    greet_seconds: float = 6.0
    """A neighbour that has connected shows within that time that it knows the secret."""
    walks: bool = False
    """Exact sums are made along the ring; else, as in versions of before, all parts are
    gathered."""
    chains: bool = False
    """Fast sums are; else, as in versions of before, MLX makes them."""


# --- what a node wants done with its reducer, and hears of it -------------------------------------


@dataclass(frozen=True, slots=True)
class ReducerListens:
    """A reducer that was told to form a ring does: while that comes up it can't say so itself."""

    child: int


@dataclass(frozen=True, slots=True)
class ReducerTaken:
    """It did, and before that was seen it has let somebody in, though no rank was told to connect
    yet."""

    child: int


@dataclass(frozen=True, slots=True)
class StopReducer:
    """SIGSTOP."""

    child: int


@dataclass(frozen=True, slots=True)
class ContinueReducer:
    """SIGCONT."""

    child: int


RingToLeader = Listening
RingToMember = Go | Continue
RingEffect = StopReducer | ContinueReducer
RingEvent = ReducerListens | ReducerTaken
