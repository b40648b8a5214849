"""The node's warm reducer: started ahead of need, whichever job needs it next."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.core.context import Context
from elasticd.core.words.effects import KillChild, StartReducer

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Warm:
    """One that is ready: where it would listen, whether it can prove to know a secret, and whether
    it can make exact sums along the ring, and fast ones."""

    host: str
    proves: bool = False
    walks: bool = False
    chains: bool = False


@dataclass(slots=True)
class SpareReducers:
    """The node's warm reducer, whichever job needs it next."""

    ctx: Context
    starting: set[int] = field(default_factory=set)
    ready: dict[int, Warm] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    failures: int = 0
    not_before: float = 0.0

    def ensure(self) -> None:
        if not self.starting and not self.ready and self.ctx.now >= self.not_before:
            child = self.ctx.next_child()
            self.starting.add(child)
            self.ctx.do(StartReducer(child))

    def adopt(self, child: int, pid: int) -> None:
        """A spare of the daemon before this one; it says once more that it is ready."""
        self.starting.add(child)
        self.started(child, pid)

    def started(self, child: int, pid: int) -> None:
        """A child runs as that process, whether it is a spare or not."""
        self.pids[child] = pid

    def became_ready(self, child: int, warm: Warm) -> bool:
        if child not in self.starting:
            return False
        self.starting.discard(child)
        self.ready[child] = warm
        self.failures = 0
        return True

    def has(self, child: int) -> bool:
        return child in self.starting or child in self.ready

    def exited(self, child: int) -> bool:
        """A child has ended: whether it was a spare."""
        self.pids.pop(child, None)
        mine = self.has(child)
        if child in self.starting:
            # One that can't even start would be started for ever, without a pause.
            wait = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**self.failures)
            self.failures += 1
            self.not_before = self.ctx.now + wait
        self.starting.discard(child)
        self.ready.pop(child, None)
        return mine

    def warm(self) -> Warm | None:
        """The next one that a world would take."""
        return next(iter(self.ready.values()), None)

    def take(self, host: str) -> int | None:
        """The one that listens there, at whichever of this node's addresses."""
        for child, own in self.ready.items():
            if own.host.rpartition(":")[2] == host.rpartition(":")[2]:
                del self.ready[child]
                return child
        return None

    def drop(self) -> None:
        for child in (*sorted(self.starting), *self.ready):
            self.ctx.do(KillChild(child, "no job needs a reducer"))
        self.starting.clear()
        self.ready.clear()

    def deadlines(self) -> list[float]:
        return [] if self.starting or self.ready else [self.not_before]
