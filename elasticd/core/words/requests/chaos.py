"""Harm that is done on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from elasticd.types import JobId, NodeId

StruckProcess = Literal["trainer", "reducer", "node"]
"""Of a rank; a node is its daemon and all that it has started."""
StrikeKind = Literal["kill", "hang", "oom", "slow"]
CutKind = Literal["link", "partition"]
CutHow = Literal["drop", "close", "one-way"]


@dataclass(frozen=True, slots=True)
class StrikeRank:
    """Hurt a rank's process, for some seconds or, with 0, for ever."""

    kind: ClassVar = "chaos"
    what: StrikeKind
    job: JobId
    rank: int
    process: StruckProcess = "trainer"
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CutLinks:
    """Between groups of nodes."""

    kind: ClassVar = "chaos"
    what: CutKind
    groups: tuple[tuple[NodeId, ...], ...]
    seconds: float
    how: CutHow = "drop"


@dataclass(frozen=True, slots=True)
class RankStruck:
    """What was done to which process; ``pid`` 0 is a whole node."""

    what: StrikeKind
    process: StruckProcess
    node: NodeId
    pid: int
    seconds: float
    job: JobId
    rank: int


@dataclass(frozen=True, slots=True)
class LinksCut:
    what: CutKind
    groups: tuple[tuple[NodeId, ...], ...]
    how: CutHow
    seconds: float
