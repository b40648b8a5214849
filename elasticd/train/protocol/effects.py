"""What the driver of a trainer's protocol has to do, in the order in which it was decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticd.core.words.trainers import FromTrainer
from elasticd.train.protocol.lending import Given

Cargo = Any
"""What came with a frame: descriptors, in production. Nobody here looks inside."""


@dataclass(frozen=True, slots=True)
class Say:
    """Send this to the daemon, behind what was said before."""

    word: FromTrainer


@dataclass(frozen=True, slots=True)
class LeaveWorld:
    """The world was left: whoever waits for its reducer gives up."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Nobody takes this any more."""

    cargo: Cargo


@dataclass(frozen=True, slots=True)
class Export:
    """Write what is given, and say so under this serial; in the background."""

    serial: int
    given: Given[Any, Any]


@dataclass(frozen=True, slots=True)
class TellProgress:
    """The progress has changed: say it now."""


Effect = Say | LeaveWorld | Drop | Export | TellProgress
