"""What leader and member know of a collective engine, whatever it is.

A backend has a side at the leader, for one world while it forms, and a side at each member, for its
rank in one world. What the two say to each other, and what is done with the process that holds the
rank's group, is the backend's own business (core/words/engines.py). A world of one has no engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elasticd.core.words.effects import ChildId
from elasticd.core.words.engines import EngineEvent, EngineToLeader, EngineToMember
from elasticd.core.words.reducers import FromReducer
from elasticd.types import NodeId


@dataclass(frozen=True, slots=True)
class Broken:
    """Why an engine can't go on."""

    text: str
    stranger_at: int = -1
    """The rank at whose address somebody else than its neighbour seems to be; -1: none."""
    wrong: bool = False
    """That one has shown something wrong; else it has shown nothing."""


class LeaderEngine(Protocol):
    """The engine of one world whose members have been told to form it."""

    def on_word(self, node: NodeId, word: EngineToLeader) -> None:
        """A member's side speaks."""


class MemberEngine(Protocol):
    """One rank's side of the engine of one world."""

    @property
    def child(self) -> ChildId | None:
        """The process that holds the rank's group; None: there is none, or it has ended."""

    @property
    def up(self) -> bool:
        """Whether the group is formed."""

    @property
    def deadline(self) -> float:
        """When it must be up, in monotonic seconds; inf if that was complained of."""

    def claim(self) -> str:
        """Get hold of the process that the leader counts on. Why it is not there, or nothing."""

    def adopt(self, child: ChildId, pid: int, up: bool) -> None:
        """A daemon before this one has brought it as far as that."""

    def come_up(self) -> None:
        """The rank's trainer knows of the world: go as far as one rank can by itself."""

    def on_word(self, word: EngineToMember) -> None:
        """The leader's side speaks."""

    def on_event(self, event: EngineEvent) -> Broken | None:
        """The process has come so far. Why the engine is broken, if it is."""

    def on_said(self, word: FromReducer) -> Broken | None:
        """The process speaks. Why the engine is broken, if it is."""

    def on_stopped(self, seconds: float) -> str:
        """The process has been stopped (SIGSTOP) for ``seconds``. Why that is a fault, or nothing:
        an engine may have done it itself."""

    def overdue(self) -> Broken:
        """It is not up in time: says so, once."""

    def trouble(self) -> str:
        """Why it can't go on though nothing has broken, or nothing."""

    def ended(self) -> None:
        """The process has ended."""
