"""MLX's ring, brought up in an order in which no connect ever waits.

Ranks 0 to N-2 listen. Rank 0 is stopped, rank N-1 connects to its backlog and listens, rank 0 goes
on (docs/architecture.md). The ring's sockets may wait for ever without a word, so a way that is
dead has to be noticed from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import assert_never

from elasticd.core.context import Context
from elasticd.core.engines.port import Broken
from elasticd.core.engines.spares import SpareReducers
from elasticd.core.words.effects import ChildId, FormReducer
from elasticd.core.words.engines import EngineEvent, EngineToLeader, EngineToMember
from elasticd.core.words.records import World
from elasticd.core.words.reducers import (
    FromReducer,
    ReducerBroken,
    ReducerFormed,
    ReducerHere,
    ReducerWarm,
)
from elasticd.core.words.ring import (
    Continue,
    ContinueReducer,
    FormRing,
    Go,
    Listening,
    ReducerListens,
    ReducerTaken,
    RingToLeader,
    RingToMember,
    StopReducer,
)
from elasticd.types import NO_SECRET, NodeId, Reduction, Secret


@dataclass(slots=True)
class RingLeader:
    """Tells the last rank when the others listen, and the first one when the last does."""

    ctx: Context
    world: World
    listening: set[NodeId] = field(default_factory=set)

    def on_word(self, node: NodeId, word: EngineToLeader) -> None:
        if not isinstance(word, RingToLeader):
            return
        world = self.world
        self.listening.add(node)
        *first, last = world.members
        if node == last:
            self.ctx.send(world.members[0], Continue(world.job, world.generation))
        elif self.listening == set(first):
            self.ctx.send(last, Go(world.job, world.generation))


@dataclass(slots=True)
class RingMember:
    """One rank's reducer, from the warm spare to its place in the ring."""

    ctx: Context
    reducers: SpareReducers
    tell: Callable[[RingToLeader], None]
    """The leader."""
    world: World
    rank: int
    reduction: Reduction
    deadline: float
    secret: Secret = field(default=NO_SECRET, repr=False)
    child: ChildId | None = None
    up: bool = False
    stopped_by_us: bool = False
    """Because the bring-up wants that."""
    form_by: float = inf
    """The last rank's deadline for the ring, while it has one for its connect."""

    def claim(self) -> str:
        self.child = self.reducers.take(self.world.hosts[self.rank])
        return "" if self.child is not None else "the warm reducer died before the world formed"

    def adopt(self, child: ChildId, pid: int, up: bool) -> None:
        self.reducers.started(child, pid)
        self.child, self.up, self.stopped_by_us = child, up, False

    def come_up(self) -> None:
        if self.rank < len(self.world.members) - 1:
            self._form()

    def _form(self) -> None:
        if self.child is None:
            return
        world, rank = self.world, self.rank
        size, hosts = len(world.members), world.hosts
        seconds = self.ctx.timing.greet_seconds
        tag, how = world.generation, self.reduction
        order = FormRing(
            tag, rank, size, hosts, how, self.secret, seconds, world.walks, world.chains
        )
        self.ctx.do(FormReducer(self.child, world, rank, order))

    def on_word(self, word: EngineToMember) -> None:
        if not isinstance(word, RingToMember):
            return
        match word:
            case Go():
                if self.secret and self.deadline < inf:
                    # Rank 0 listens: so connecting takes no time, unless somebody else has.
                    soon = self.ctx.now + self.ctx.timing.greet_seconds
                    self.form_by, self.deadline = self.deadline, min(self.deadline, soon)
                self._form()
            case Continue():
                if self.child is not None:
                    self.ctx.do(ContinueReducer(self.child))
                    self.stopped_by_us = False
            case _:
                assert_never(word)

    def on_event(self, event: EngineEvent) -> Broken | None:
        match event:
            case ReducerListens():
                self._listens()
                return None
            case ReducerTaken():
                early = "somebody has connected before any rank was told to"
                return self._stranger(self.rank, early, wrong=True)
            case _:
                assert_never(event)

    def _listens(self) -> None:
        if self.form_by < inf and self.deadline < inf:
            self.form_by, self.deadline = inf, self.form_by
        if self.child is not None and self.rank == 0:
            # Rank N-1 may now connect to our backlog and listen before we go on to connect.
            self.ctx.do(StopReducer(self.child))
            self.stopped_by_us = True
        self.tell(Listening(self.world.job, self.world.generation))

    def on_said(self, word: FromReducer) -> Broken | None:
        match word:
            case ReducerFormed(generation):
                self.up = self.up or generation == self.world.generation
            case ReducerBroken(generation, evidence, stranger_at, wrong):
                if generation != self.world.generation:
                    return None
                if not self.up and 0 <= stranger_at < len(self.world.members):
                    return self._stranger(stranger_at, evidence, wrong)
                return Broken(evidence)
            case ReducerWarm() | ReducerHere():
                pass
            case _:
                assert_never(word)
        return None

    def _stranger(self, rank: int, evidence: str, wrong: bool) -> Broken:
        members = self.world.members
        there = "is" if wrong else "may be"
        place = f"on the port of rank {rank} ({members[rank]}), where {members[rank - 1]} belongs"
        return Broken(f"a stranger {there} {place}: {evidence}", rank, wrong)

    def on_stopped(self, seconds: float) -> str:
        if self.stopped_by_us:
            return ""
        return f"its reducer was stopped (SIGSTOP) for {seconds:.1f} s"

    def overdue(self) -> Broken:
        self.deadline, timing = inf, self.ctx.timing
        if self.form_by < inf:
            late = f"that listens, but could not be connected to in {timing.greet_seconds:g} s"
            return self._stranger(0, late, wrong=False)
        return Broken(f"its ring did not come up in {timing.form_seconds} s")

    def trouble(self) -> str:
        members, next_rank = self.world.members, (self.rank + 1) % len(self.world.members)
        left, right = members[self.rank - 1], members[next_rank]
        host = self.world.hosts[next_rank].rpartition(":")[0]
        dead = {p.host for p in self.ctx.reach.paths.get(right, ()) if not p.healthy}
        if host in dead:
            return f"nothing comes back from {right} at {host}"
        lost = next((n for n in (left, right) if n in self.ctx.reach.deaf), None)
        return f"{lost} is not heard directly any more" if lost is not None else ""

    def ended(self) -> None:
        self.child = None
