"""What every child says and is told, whatever its role (docs/protocols.md §1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elasticd.core.words.children import Alive
from elasticd.core.words.codec import Words
from elasticd.types import Role


@dataclass(frozen=True, slots=True)
class ChildHello:
    """The first frame on a connection, also to a daemon that was started again."""

    kind: ClassVar = "hello"
    nonce: str
    """As its environment has it: it is the process that the daemon has started."""
    pid: int
    role: Role


@dataclass(frozen=True, slots=True)
class ChildBye:
    """The last word of a process that exits: a daemon that did not start it can't learn its status
    otherwise."""

    kind: ClassVar = "bye"
    status: int


FromAnyChild = ChildHello | ChildBye
ToAnyChild = Alive

FROM_ANY_CHILD: Words[FromAnyChild] = Words(FromAnyChild)
TO_ANY_CHILD: Words[ToAnyChild] = Words(ToAnyChild)
