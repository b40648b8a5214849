"""What a probe of a machine is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elasticd.preflight.finding import ProbeFinding


@dataclass(frozen=True, slots=True)
class MacProbe:
    """Something that is tried out on this machine, in a process of its own.

    Attributes:
        about: what it shows, for people.
        run: does it in a folder that is on the disk to be looked at; it may hang or crash.
        seconds: what it gets.
        crashed: the cure if it says nothing.
        root: on a Mac it takes sudo, whose password its owner gives before.
        grace: what it gets, if it is late or interrupted, to end what it has started.
    """

    name: str
    about: str
    run: Callable[[Path], ProbeFinding]
    seconds: float
    crashed: str
    root: bool = False
    grace: float = 20.0
