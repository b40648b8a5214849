"""What every child says and is told, whatever its role (docs/protocols.md §1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elasticd.core.words.codec import Words
from elasticd.types import Role

CANNOT_BEGIN = 73
"""Exit status of a trainer whose script was not begun, as its clone of the job's folder can't be
made, it doesn't start, or the job's own interpreter can't run elasticd: the node is unfit for the
job. Its last line says why. (EX_CANTCREAT of sysexits.h.)"""
UNCOUNTED = 75
"""Exit status of a trainer whose script has raised in a body that doesn't count, or has left its
loop in one, as the job had gone on without it: a new one takes its place. Its last line says so.
(EX_TEMPFAIL.)"""
OURS = "elasticd: "
"""With this the last line begins."""


OLDEST, NEWEST = 1, 1
"""Versions of what a daemon and its children say to each other. A child speaks the newest. A daemon
that was upgraded takes over children that speak the oldest or a later one, and replaces others. The
newest is raised when either side would refuse what is new."""


@dataclass(frozen=True, slots=True)
class ChildHello:
    """The first frame on a connection, also to a daemon that was started again."""

    kind: ClassVar = "hello"
    nonce: str
    """As its environment has it: it is the process that the daemon has started."""
    pid: int
    role: Role
    version: int = 1
    """Of what a daemon and its children say to each other, as the child speaks it."""


@dataclass(frozen=True, slots=True)
class ChildBye:
    """The last word of a process that exits: a daemon that did not start it can't learn its status
    otherwise."""

    kind: ClassVar = "bye"
    status: int


@dataclass(frozen=True, slots=True)
class Alive:
    """To every child: its daemon lives."""

    kind: ClassVar = "alive"


FromAnyChild = ChildHello | ChildBye
ToAnyChild = Alive

FROM_ANY_CHILD: Words[FromAnyChild] = Words(FromAnyChild)
TO_ANY_CHILD: Words[ToAnyChild] = Words(ToAnyChild)
