"""Reducer and ring as docs/protocols.md §1 and §2 describe them, without any numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, assert_never

from elasticd.core.words.records import World
from elasticd.core.words.reducers import ReducerBroken, ReducerFormed, ReducerHere
from elasticd.core.words.ring import ContinueReducer, FormRing, RingEffect, StopReducer
from elasticd.train.world import TrainerWorld
from elasticd.types import NO_SECRET, Point, Secret

from .process import Process

if TYPE_CHECKING:
    from .cluster import Cluster
    from .host import Host
    from .trainer import Trainer


@dataclass(frozen=True, slots=True)
class Place:
    """What comes with a world: the way to its reducer."""

    formed: World
    rank: int
    reducer: Reducer | None


def grains_of(world: TrainerWorld, step: int) -> frozenset[int]:
    """Those of a member's share."""
    return frozenset(grain for start, end in world.share(step) for grain in range(start, end))


class Reducer(Process):
    """Holds a place in one ring."""

    def __init__(self, host: Host, child: int) -> None:
        super().__init__(host, child)
        self.ring: Ring | None = None
        self.rank = -1
        self.listens = False
        self.trainer: Trainer | None = None
        self.data_closed = False
        self.warm = self.formed = False
        self.world: World | None = None
        self.proves = host.release.knows_secrets
        self.secret: Secret = NO_SECRET
        self.greet_seconds = 0.0
        self.along = (False, False)
        """Whether exact sums, and fast ones, are made along the ring."""
        start = self.chance("starts").uniform(*self.cluster.setup.reducer_start_seconds)
        self.later(start, self._ready)

    def _ready(self) -> None:
        self.warm = True
        self.host.reducer_ready(self)

    def introduce(self) -> None:
        generation = self.world.generation if self.world is not None else None
        self.tell_daemon(ReducerHere(generation, self.formed))
        if self.warm and self.world is None:
            self.host.reducer_ready(self)

    def perform(self, effect: RingEffect) -> None:
        match effect:
            case StopReducer():
                self.stop()
            case ContinueReducer():
                self.go_on()
            case _:
                assert_never(effect)

    def form(self, world: World, rank: int, order: FormRing) -> None:
        self.world, self.secret, self.greet_seconds = world, order.secret, order.greet_seconds
        self.along = (order.walks, order.chains)
        self.cluster.strangers.told(world, order.secret)
        self.later(self.chance("ring").uniform(0.002, 0.02), lambda: self._listen(world, rank))

    def _listen(self, world: World, rank: int) -> None:
        self.rank, self.ring = rank, ring_of(self.cluster, world)
        if self.ring.blocked and rank == len(world.members) - 1:
            return  # it can't connect to rank 0, and listens only then
        self.listens = True
        self.ring.places[rank] = self
        if self.cluster.strangers.is_quick(self):
            self.host.reducer_taken(self)
        else:
            self.host.reducer_listens(self)
            self.cluster.strangers.look(self)
        self.ring.look()
        if self.data_closed:
            self.close_data()

    def close_data(self) -> None:
        """The trainer's end of the data socket closed."""
        self.data_closed = True
        if self.ring is not None:
            self.later(self.chance("ends").uniform(0.0005, 0.005), lambda: self.die(0))

    def go_on(self) -> None:
        super().go_on()
        if self.alive and not self.stops and self.ring is not None:
            self.ring.look()

    def say_formed(self) -> None:
        assert self.ring is not None
        self.formed = True
        self.tell_daemon(ReducerFormed(self.ring.world.generation))

    def breaks(self, evidence: str, stranger_at: int = -1, wrong: bool = False) -> None:
        assert self.ring is not None
        generation = self.ring.world.generation
        self.tell_daemon(ReducerBroken(generation, evidence, stranger_at, wrong))
        self.die(1)

    def ended(self, status: int) -> None:
        if self.ring is not None:
            self.ring.lost(self.rank)
        trainer = self.trainer
        if trainer is not None:
            notice = self.chance("notices").uniform(*self.cluster.setup.notice_seconds)
            trainer.later(notice, lambda: trainer.lost_reducer(self))


@dataclass(slots=True)
class Arrival:
    """A member that has come to a collective."""

    reducer: Reducer
    point: Point
    share: frozenset[int]
    done: Callable[[], None]


class Ring:
    """The collectives of one generation."""

    def __init__(self, cluster: Cluster, world: World) -> None:
        self.cluster, self.world = cluster, world
        self.places: dict[int, Reducer] = {}
        self.up = False
        self.deadlocked = False
        self.blocked = False
        """A stranger is in rank 0's backlog, and has all of it."""
        self.gone: set[int] = set()
        self._arrivals: dict[tuple[str, int], dict[int, Arrival]] = {}
        self._out: list[int] = []

    def look(self) -> None:
        """Bring the ring up when every rank listens and runs; let complete what can."""
        size = len(self.world.members)
        whole = len(self.places) == size and not self.gone
        if not whole or self.deadlocked or any(r.stops for r in self.places.values()):
            return
        differ = len({reducer.along for reducer in self.places.values()}) > 1
        if differ or self.cluster.addresses.severs(self.world):
            self.deadlocked = True
            return
        if not self.up:
            self.up = True
            for rank in range(size):
                reducer = self.places[rank]
                reducer.later(reducer.chance("ring").uniform(0.005, 0.02), reducer.say_formed)
        for key in [k for k, arrived in self._arrivals.items() if len(arrived) == size]:
            self._complete(key, self._arrivals.pop(key))

    def join(self, key: tuple[str, int], rank: int, arrival: Arrival) -> None:
        self._arrivals.setdefault(key, {})[rank] = arrival
        self.look()

    def _complete(self, key: tuple[str, int], arrived: dict[int, Arrival]) -> None:
        self.cluster.checkers.collective(self.world, key, arrived)
        longer = self.cluster.setup.reduce_seconds_of(key[1]) if key[0] == "step" else 0.0
        for rank in sorted(arrived):
            # Those whose last chunk has come get it even if a neighbour dies meanwhile.
            chance = arrived[rank].reducer.chance("collectives")
            delay, lucky = longer + chance.uniform(0.001, 0.008), chance.random() < 0.5
            arrived[rank].reducer.later(delay, partial(self._deliver, arrived[rank], lucky))

    def _deliver(self, arrival: Arrival, lucky: bool) -> None:
        if lucky or not self.gone:
            arrival.done()

    def lost(self, rank: int) -> None:
        """A reducer is gone: its neighbours notice at once, mostly; the rest hang."""
        if rank in self.gone:
            return
        self.gone.add(rank)
        size = len(self.world.members)
        for neighbour in sorted({(rank - 1) % size, (rank + 1) % size} - self.gone):
            reducer = self.places.get(neighbour)
            if reducer is None or not reducer.alive:
                continue
            chance = reducer.chance("broken rings")
            if chance.random() < (0.95 if self.up else 0.5):
                delay = chance.uniform(0.001, 0.06)
                reducer.later(delay, partial(reducer.breaks, "connection to a peer was lost"))


def ring_of(cluster: Cluster, world: World) -> Ring:
    return cluster.rings.setdefault(str(world.generation), Ring(cluster, world))
