"""Trainer, reducer and ring as docs/protocols.md §1 and §2 describe them, without any numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from elasticd.checkpoints.layout import due, writes
from elasticd.core.words.records import World
from elasticd.settings.job import JobSpec
from elasticd.train.link.voice import Voice
from elasticd.types import JobId, Point, Tag, first_stamp, next_stamp

from .disk import SPOILT, DiskFull

if TYPE_CHECKING:
    from .cluster import Cluster
    from .host import Host

FINGERPRINT = {"dataset": "1000", "grain0": "0", "w": "float32[4]"}
_SOCKET_SECONDS = 0.0005
"""Constant, so that nothing overtakes."""
_REWRITE_SECONDS = 5.0
_SIGKILL = -9
_SIGTERM = -15


class Process:
    """A child of a daemon. A stopped process does what was due when it goes on."""

    def __init__(self, host: Host, child: int) -> None:
        self.host, self.child = host, child
        self.cluster: Cluster = host.cluster
        self.alive = True
        self.adopted = False
        """A daemon before the present one has started it."""
        self.stops = 0
        self._name = f"{host.boot} {child}"
        self.status = 0
        """How it ended."""
        self._due: list[Callable[[], None]] = []

    def chance(self, what: str) -> random.Random:
        """The stream of chance for one thing that this process does."""
        return self.cluster.chances.of(what, self._name)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.cluster.after(seconds, lambda: self._do(action))

    def _do(self, action: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self.stops:
            self._due.append(action)
        else:
            action()

    def stop(self) -> None:
        self.stops += 1

    def go_on(self) -> None:
        self.stops = max(0, self.stops - 1)
        if not self.stops and self.alive:
            waiting, self._due = self._due, []
            for action in waiting:
                self._do(action)

    def tell_daemon(self, message: dict[str, Any]) -> None:
        self.host.said(self, message)

    def kill(self, signal: int = _SIGKILL) -> None:
        if signal == _SIGKILL:
            self.die(signal)
        else:
            self.later(self.chance("ends").uniform(0.001, 0.05), lambda: self.die(signal))

    def die(self, status: int) -> None:
        if self.alive:
            self.alive = False
            self.ended(status)
            self.host.exited(self, status)

    def ended(self, status: int) -> None:
        """What the kernel does to the process's sockets."""

    def introduce(self) -> None:
        """A new daemon listens in the place of the old one."""


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
        start = self.chance("starts").uniform(*self.cluster.setup.reducer_start_seconds)
        self.later(start, self._ready)

    def _ready(self) -> None:
        self.warm = True
        self.host.reducer_ready(self)

    def introduce(self) -> None:
        generation = plain(self.world.generation) if self.world is not None else None
        self.tell_daemon({"t": "here", "generation": generation, "formed": self.formed})
        if self.warm and self.world is None:
            self.host.reducer_ready(self)

    def form(self, world: World, rank: int) -> None:
        self.world = world
        self.later(self.chance("ring").uniform(0.002, 0.02), lambda: self._listen(world, rank))

    def _listen(self, world: World, rank: int) -> None:
        self.rank, self.ring = rank, ring_of(self.cluster, world)
        self.listens = True
        self.ring.places[rank] = self
        self.host.reducer_listens(self)
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
        self.tell_daemon({"t": "formed", "generation": plain(self.ring.world.generation)})

    def breaks(self, evidence: str) -> None:
        assert self.ring is not None
        generation = plain(self.ring.world.generation)
        self.tell_daemon({"t": "broken", "generation": generation, "evidence": evidence})
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
        self.gone: set[int] = set()
        self._arrivals: dict[tuple[str, int], dict[int, Arrival]] = {}
        self._out: list[int] = []

    def look(self) -> None:
        """Bring the ring up when every rank listens and runs; let complete what can."""
        size = len(self.world.members)
        whole = len(self.places) == size and not self.gone
        if not whole or self.deadlocked or any(r.stops for r in self.places.values()):
            return
        if self.cluster.addresses.severs(self.world):
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
        for rank in sorted(arrived):
            # Those whose last chunk has come get it even if a neighbour dies meanwhile.
            chance = arrived[rank].reducer.chance("collectives")
            delay, lucky = chance.uniform(0.001, 0.008), chance.random() < 0.5
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


@dataclass(slots=True)
class Seat:
    """A trainer's place in the world that it is in."""

    world: World
    rank: int
    reducer: Reducer | None
    entered: bool = False

    @property
    def generation(self) -> Tag:
        return self.world.generation

    def share(self, step: int) -> frozenset[int]:
        shares = self.world.shares_now if step == self.world.step + 1 else self.world.shares
        return frozenset(g for start, end in shares[self.rank] for g in range(start, end))


@dataclass(frozen=True, slots=True)
class Update:
    """One reduced gradient, as it is given to others."""

    before: Point
    generation: Tag
    after: Point


@dataclass(frozen=True, slots=True)
class Brought:
    """A state, or, with updates, what leads to it."""

    point: Point
    updates: tuple[Update, ...] = ()
    spoilt: bool = False


@dataclass(slots=True)
class Load:
    generation: Tag
    brought: Brought


class Socket:
    """Carries a trainer's voice to whichever daemon listens."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> bool:
        self._process.host.said(self._process, dict(message))
        return True


class Trainer(Process):
    """Runs a script: enters worlds, computes grains, reduces, updates, commits."""

    def __init__(self, host: Host, child: int, job: JobId, spec: JobSpec, spare: bool) -> None:
        super().__init__(host, child)
        self.voice = Voice(Socket(self))
        self.job, self.spec = job, spec
        self.point: Point | None = None
        self.committed: int | None = None
        self.seat: Seat | None = None
        self.turn = 0
        self.updating = False
        self.freezes: list[int] = []
        self.computed: set[int] = set()
        self.base: Point | None = None
        self.files: Load | None = None
        self.agreed = False
        self.probed: Tag | None = None
        self.verdict: Tag | None = None
        self.released = False
        self.writing = False
        self.log: list[Update] = []
        self.lent: Point | None = None
        self.lend_at: int | None = None
        self.lending: Tag | None = None
        self.deliveries: list[tuple[int, Brought]] = []
        self.frozen_at = 0
        self.phase = "idle"
        self.at_run = False
        self.fails_with: int | None = None
        self.relief = 0
        self.stuck = False
        """Never ends what it computes."""
        self.short = False
        """Its next grain does not fit into memory."""
        self.spare = spare
        self.spoilt = False
        """Its state is not what the others have at this step."""
        self.doubts: list[tuple[object, bool]] = []
        """The leaders' drivers that have found that out; whether the others were of one mind."""
        self.fresh = False
        """It has taken another's state, of which its daemon may not know yet."""
        self.halt = -1
        start = self.chance("starts").uniform(*self.cluster.setup.trainer_start_seconds)
        if spare and spec.recovery.spare == "interpreter":
            self.later(start / 2, lambda: self.tell_daemon({"t": "waiting"}))
        else:
            self.later(start, self._reach_run)

    # --- from the daemon --------------------------------------------------------------------------

    def tell_daemon(self, message: dict[str, Any]) -> None:
        self.voice.send(message)

    def introduce(self) -> None:
        self.freezes.clear()

        def resume(messages: Sequence[Mapping[str, Any]]) -> None:
            for message in messages:
                self.host.said(self, dict(message))

        self.voice.introduce(resume, self._report())

    def hear(self, message: dict[str, Any]) -> None:
        self.later(_SOCKET_SECONDS, lambda: self._handle(message))

    def _handle(self, message: dict[str, Any]) -> None:
        match message["t"]:
            case "run":
                start = self.chance("starts").uniform(*self.cluster.setup.trainer_start_seconds)
                self.later(start / 2, self._reach_run)
            case "freeze":
                self._freeze(message["serial"])
            case "exact":
                counter, leader, nonce = message["generation"]
                self.verdict = Tag(counter, leader, nonce)
                self.voice.judged()
                self._maybe_agree()
            case "lend":
                self._lend(message)
            case "trim":
                pass
            case "halt":
                self._order_halt(message)
            case "release":
                self.released = True
                self.voice.released()
                self.later(self.chance("ends").uniform(0.01, 0.2), lambda: self.die(0))
            case other:
                raise AssertionError(f"a trainer can't read {other!r}")

    def _order_halt(self, message: dict[str, Any]) -> None:
        """Too late, and it is not obeyed."""
        seat, step = self.seat, message["step"]
        if seat is None or plain(seat.generation) != message["generation"]:
            return
        at = -1 if self.point is None else self.point.step + self.updating
        halted = self.point is not None and self.halt == self.point.step == self.committed
        self.halt = step if at < step else -1
        if halted and self.phase == "paused":
            self._soon((0.0, 0.002), self._compute)

    def _reach_run(self) -> None:
        if self.fails_with is not None:
            self.die(self.fails_with)
            return
        self.at_run = True
        self.tell_daemon({"t": "at_run", "fingerprint": FINGERPRINT})

    def _freeze(self, serial: int) -> None:
        self._leave()
        self.frozen_at, self.deliveries = serial, []
        self.voice.frozen()
        self.voice.asked(serial)
        if self.updating:
            self.freezes.append(serial)
        else:
            self._answer(serial)

    def _answer(self, serial: int) -> None:
        point = self.point
        self.tell_daemon(
            {
                "t": "holding",
                "serial": serial,
                "point": plain_point(point),
                "committed": self.committed,
                "gives": [] if self._scripted else [update.before.stamp for update in self.log],
                "replays": point is not None and not self._scripted,
            }
        )

    # --- states for others, and from others -------------------------------------------------------

    def _lend(self, message: dict[str, Any]) -> None:
        seat = self.seat
        if seat is None or plain(seat.generation) != message["generation"]:
            return
        step = message["step"]
        if self._scripted:
            self._say_lent(-1 if step is None else step, "", "the script changes it", never=True)
            return
        self.lent = None
        self.lending = seat.generation if message["log"] else None
        self.lend_at = step
        if step is not None and (self.updating or self.point is None or self.point.step >= step):
            self._say_lent(step, "", "that step is over")

    @property
    def _scripted(self) -> bool:
        return self.cluster.setup.script_state

    def _say_lent(self, step: int, stamp: str, reason: str, never: bool = False) -> None:
        self.lend_at = None
        assert self.seat is not None
        self.tell_daemon(
            {
                "t": "lent",
                "generation": plain(self.seat.generation),
                "step": step,
                "stamp": stamp,
                "reason": reason,
                "never": never,
            }
        )

    def _maybe_lend(self) -> None:
        seat, point = self.seat, self.point
        if seat is not None and point is not None and self.lend_at == point.step:
            self.lent = point
            self._say_lent(point.step, point.stamp, "")

    def _keep(self, update: Update) -> None:
        """The log has a limit, beyond which all that was kept for newcomers goes."""
        self.log.append(update)
        lending = self.seat is not None and self.lending == self.seat.generation
        limit = self.cluster.setup.log_limit if lending else 1
        if len(self.log) > limit:
            self.log, self.lent, self.lending = [update], None, None

    def _forget_log(self) -> None:
        """All members have applied the newest step."""
        if self.seat is None or self.lending != self.seat.generation:
            self.log, self.lent = [], None

    def export(self, wanted: Point, since: Point | None) -> Brought | None:
        """The updates since a point, else the whole state; None if we have neither."""
        stamps = [update.before.stamp for update in self.log]
        if since is not None and since.stamp in stamps and not self._scripted:
            updates = self.log[stamps.index(since.stamp) :]
            return Brought(updates[-1].after, tuple(updates))
        for held in (self.lent, None if self.updating else self.point):
            if held is not None and (held.step, held.stamp) == (wanted.step, wanted.stamp):
                return Brought(held, spoilt=self.spoilt)
        return None

    def deliver(self, serial: int, brought: Brought) -> None:
        """The daemon's ``prepare`` message."""

        def brought_here() -> None:
            self.voice.asked(serial)
            if serial >= self.frozen_at:
                self.deliveries.append((serial, brought))
                self._maybe_take()

        self.later(_SOCKET_SECONDS, brought_here)

    def _maybe_take(self) -> None:
        if self.seat is not None or self.updating or not self.deliveries:
            return
        serial, brought = self.deliveries.pop(0)
        point = self._replayed(brought)
        if point is None:
            self._say_prepared(serial, None, "the updates don't follow what is held")
            return
        self.updating = True

        def done() -> None:
            self.committed = None
            self._take_over(brought)
            self._update_done(point)
            self._say_prepared(serial, point, "")
            self._maybe_take()

        self.later(self.chance("loads").uniform(0.005, 0.05), done)

    def _say_prepared(self, serial: int, point: Point | None, reason: str) -> None:
        said = {"serial": serial, "point": plain_point(point), "reason": reason, "replays": True}
        self.tell_daemon({"t": "prepared", **said})

    def _replayed(self, brought: Brought) -> Point | None:
        """The state after ``brought``; None if its updates don't lead on from ours."""
        if not brought.updates:
            return brought.point
        held = self.point
        for update in brought.updates:
            if held is None or held.stamp != update.before.stamp:
                return None
            stamp = next_stamp(held.stamp, update.generation, held.step + 1)
            if stamp != update.after.stamp:
                return None
            held = update.after
        return held

    def _take_over(self, brought: Brought) -> None:
        if not brought.updates:
            self.spoilt = brought.spoilt
            self.doubts.clear()
            self.fresh = True

    def _leave(self) -> None:
        self.turn += 1
        seat, self.seat = self.seat, None
        if seat is not None and seat.reducer is not None:
            seat.reducer.close_data()

    def enter(self, world: World, rank: int, reducer: Reducer | None) -> None:
        """The daemon's ``world`` message, which the script's thread takes when it is free."""
        if reducer is not None:
            reducer.trainer = self

        def offered() -> None:
            self._leave()
            self.seat = Seat(world, rank, reducer)
            self.halt = -1
            self.voice.given(world.generation, world.sources[rank] in ("keep", "init"))
            if reducer is not None and not reducer.alive:
                self.lost_reducer(reducer)
                return
            self._soon((0.0, self.cluster.setup.grain_seconds[1]), self._settle)

        self.later(_SOCKET_SECONDS, offered)

    def _soon(self, bounds: tuple[float, float], action: Callable[[], None]) -> None:
        """Later, unless the world ends before."""
        turn = self.turn

        def if_still() -> None:
            if self.turn == turn:
                action()

        self.later(self.chance("script").uniform(*bounds), if_still)

    # --- entering a world -------------------------------------------------------------------------

    def _settle(self) -> None:
        assert self.seat is not None
        if self.updating:
            self._soon((0.001, 0.005), self._settle)
            return
        if not self.at_run:
            self.cluster.checkers.broken(f"{self.name} got a world before Run(...)")
        world, source = self.seat.world, self.seat.world.sources[self.seat.rank]
        self.seat.entered = True
        if world.relief != self.relief:
            self.relief, self.computed = world.relief, set()
        if source == "init":
            assert self.point is None or self.point.step == 0, f"init over {self.point}"
            assert world.stamp == first_stamp(self.job, world.lineage)
            self.base = None
        elif source == "keep":
            held = self.point
            if held is None or (held.step, held.stamp) != (world.step, world.stamp):
                self.cluster.checkers.broken(f"{self.name} is to keep {world.step}, holds {held}")
        else:
            self.cluster.checkers.loads(self, world)
            self._maybe_load()
            return
        self._adopt(Point(world.lineage, world.step, world.stamp))
        self._barrier()

    def _adopt(self, point: Point) -> None:
        """Hold ``point``; grains computed from the same state stay valid."""
        if self.base is None or self.base.stamp != point.stamp:
            self.computed = set()
        self.point = self.base = point

    def load(self, generation: Tag, brought: Brought) -> None:
        """The daemon's ``load`` message."""

        def brought_here() -> None:
            if self.files is None or self.files.generation < generation:
                self.files = Load(generation, brought)
            self._maybe_load()

        self.later(_SOCKET_SECONDS, brought_here)

    def _maybe_load(self) -> None:
        seat, files = self.seat, self.files
        if seat is None or not seat.entered or files is None or self.updating:
            return
        if files.generation != seat.generation:
            return
        point = self._replayed(files.brought)
        world = seat.world
        if point is None or (point.step, point.stamp) != (world.step, world.stamp):
            self.cluster.checkers.broken(f"{self.name} is brought {files.brought}")
        self.files, self.updating = None, True

        def loaded() -> None:
            self.committed = None
            self._take_over(files.brought)
            self._update_done(Point(world.lineage, point.step, point.stamp))
            if self.seat is seat:
                self.tell_daemon(
                    {
                        "t": "loaded",
                        "generation": plain(seat.generation),
                        "step": point.step,
                        "stamp": point.stamp,
                    }
                )
                self._barrier()

        self.later(self.chance("loads").uniform(0.005, 0.03), loaded)

    # --- steps ------------------------------------------------------------------------------------

    def _barrier(self) -> None:
        assert self.seat is not None and self.point is not None
        point = self.point
        if self.seat.reducer is None:
            self._begin(point)
            return
        self._progress("reduce")
        self._join(("barrier", point.step), frozenset(), lambda: self._begin(point))

    def _begin(self, point: Point) -> None:
        self.fresh = False
        self._commit(point)

    def _join(self, key: tuple[str, int], share: frozenset[int], done: Callable[[], None]) -> None:
        assert self.seat is not None and self.point is not None
        reducer, rank, turn = self.seat.reducer, self.seat.rank, self.turn
        assert reducer is not None

        def if_still() -> None:
            if self.turn == turn:
                done()

        arrival = Arrival(reducer, self.point, share, lambda: self._do(if_still))
        ring_of(self.cluster, self.seat.world).join(key, rank, arrival)

    def _commit(self, point: Point) -> None:
        assert self.seat is not None
        self.committed = point.step
        self._forget_log()
        self.cluster.checkers.committed(self, point)
        self._progress("user")
        self._maybe_write(point)
        self._maybe_verify(point)
        if point.step == self.spec.train.steps:
            self._progress("idle")
            self.tell_daemon(
                {
                    "t": "finished",
                    "generation": plain(self.seat.generation),
                    "step": point.step,
                    "stamp": point.stamp,
                }
            )
            return
        if point.step == self.halt:
            self._progress("paused")
            return
        self._soon((0.0, 0.002), self._compute)

    def _compute(self) -> None:
        assert self.seat is not None and self.point is not None
        missing = self.seat.share(self.point.step + 1) - self.computed
        if self.phase != "compute":
            self._progress("compute")
        if missing:
            grain = min(missing)

            def computed() -> None:
                if self.short:
                    self._out_of_memory()
                elif not self.stuck:
                    self.computed.add(grain)
                    self._compute()

            low, high = self.cluster.setup.grain_seconds
            self._soon((low * self._slowness, high * self._slowness), computed)
        elif not self.agreed:
            self._probe()
        else:
            self._reduce()

    def _out_of_memory(self) -> None:
        """The world is left, the state is kept, sums of the step are dropped."""
        assert self.seat is not None
        said = {"t": "oom", "generation": plain(self.seat.generation), "evidence": "bad alloc"}
        self.short = False
        self._leave()
        self.computed = set()
        self.tell_daemon(said)

    def _probe(self) -> None:
        assert self.seat is not None
        generation = self.seat.generation
        if self.probed != generation:
            self.probed = generation
            self.tell_daemon(
                {
                    "t": "probe",
                    "generation": plain(generation),
                    "repeats": True,
                    "gradient": f"g{self.point.step if self.point else 0}",
                    "update": "u",
                    "layout": "l",
                    "state": self.point.stamp if self.point else "",
                }
            )
        self._maybe_agree()

    def _maybe_agree(self) -> None:
        seat = self.seat
        waits = seat is not None and self.probed == seat.generation and not self.agreed
        if waits and seat is not None and self.verdict == seat.generation:
            self.agreed = True
            self._compute()

    def _reduce(self) -> None:
        assert self.seat is not None and self.point is not None
        step = self.point.step + 1
        share = self.seat.share(step)
        if self.seat.reducer is None:
            alone = {0: (self.point, share)}
            self.cluster.checkers.reduced(self.seat.world, step, alone)
            self._begin_update(step)
            return
        self._progress("reduce")
        self._join(("step", step), share, lambda: self._begin_update(step))

    def _begin_update(self, step: int) -> None:
        assert self.seat is not None and self.point is not None
        self.updating = True
        stamp = next_stamp(self.point.stamp, self.seat.generation, step)
        point, seat, before = Point(self.point.lineage, step, stamp), self.seat, self.point

        def updated() -> None:
            self._keep(Update(before, seat.generation, point))
            self._update_done(point)
            if self.seat is seat:
                self._progress("update")
                self._barrier()

        self.later(self.chance("updates").uniform(0.001, 0.006), updated)

    def _update_done(self, point: Point) -> None:
        self.updating = False
        self._adopt(point)
        self._maybe_lend()
        serials, self.freezes = self.freezes, []
        for serial in serials:
            self._answer(serial)

    def lost_reducer(self, reducer: Reducer) -> None:
        seat = self.seat
        if seat is None or seat.reducer is not reducer:
            return
        self._leave()
        self.tell_daemon(
            {
                "t": "reducer_lost",
                "generation": plain(seat.generation),
                "evidence": "the data socket closed",
            }
        )

    def _maybe_verify(self, point: Point) -> None:
        every = self.spec.recovery.verify_every
        if self.seat is not None and every and point.step % every == 0:
            said = {"step": point.step, "stamp": point.stamp}
            digest = state_digest(point.step, self.spoilt)
            generation = plain(self.seat.generation)
            self.tell_daemon({"t": "digest", "generation": generation, **said, "digest": digest})

    # --- checkpoints and reports ------------------------------------------------------------------

    def _maybe_write(self, point: Point) -> None:
        assert self.seat is not None
        world, checkpoint = self.seat.world, self.spec.checkpoint
        steps = self.spec.train.steps
        if not due(point.step, checkpoint.interval_steps, steps) and point.step != self.halt:
            return
        must = point.step in (world.step, steps, self.halt)
        if point.step <= world.checkpointed:
            return
        size = len(world.members)
        rank = self.seat.rank
        named = {
            "generation": plain(world.generation),
            "lineage": point.lineage,
            "step": point.step,
            "stamp": point.stamp,
            "count": world.shards,
        }
        skipped = {"t": "checkpoint_skipped", **named}
        if self.writing and not must:
            self.tell_daemon({**skipped, "reason": "late", "refused": False})
            return
        self.writing = True
        disk, count, spoilt = self.host.disk, world.shards, self.spoilt
        indices = writes(rank, size, count, checkpoint.replicas)

        def written() -> None:
            try:
                disk.write(self.job, point, count, indices, spoilt)
            except DiskFull as error:
                self.tell_daemon({**skipped, "reason": str(error), "refused": True})
                self.writing = must
                if must:
                    # Nobody else will write it: it is tried again until there is room.
                    self.later(_REWRITE_SECONDS, written)
                return
            wait = self.chance("shards").uniform(0.005, 0.1)
            self.later(wait + disk.sync_seconds, synced)

        def synced() -> None:
            self.writing = False
            rows = disk.sync(self.job, point, count, indices, spoilt)
            message = {
                "t": "shards",
                **named,
                "shards": [{"index": i, "bytes": b, "digest": d} for i, b, d in rows],
                "digest": state_digest(point.step, spoilt) if must or 0 in indices else "",
                "check": state_digest(point.step, spoilt),
                "stall_seconds": 0.0,
                "write_seconds": 0.1,
            }
            self.tell_daemon(message)

        self.later(self.chance("shards").uniform(0.005, 0.05), written)

    def _progress(self, phase: str) -> None:
        self.phase = phase
        if (report := self._report()) is not None:
            self.tell_daemon(report)

    def _report(self) -> dict[str, Any] | None:
        seat, point = self.seat, self.point
        if seat is None or point is None:
            return None
        return {
            "t": "progress",
            "generation": plain(seat.generation),
            "step": point.step,
            "stamp": point.stamp,
            "committed": self.committed,
            "loss": 1.0 / (1 + point.step),
            "phase": self.phase,
            "steps_per_second": None,
            "memory_bytes": 1,
            "metrics": {},
            "grain_seconds": self._grain_seconds(seat, point.step),
            "update_seconds": 0.003 * self._slowness,
        }

    @property
    def _slowness(self) -> float:
        order = sorted(self.cluster.hosts).index(self.host.name)
        given = self.cluster.setup.slowness
        return given[order] if order < len(given) else 1.0

    def _grain_seconds(self, seat: Seat, step: int) -> float:
        if step == seat.world.step or not seat.share(step):
            return 0.0
        return self._slowness * sum(self.cluster.setup.grain_seconds) / 2

    def ended(self, status: int) -> None:
        self._leave()

    @property
    def name(self) -> str:
        return f"{self.host.name}/{self.child}"


def plain_point(point: Point | None) -> list[Any] | None:
    return None if point is None else [point.lineage, point.step, point.stamp]


def plain(tag: Tag) -> list[Any]:
    return [tag.counter, tag.leader, tag.nonce]


def state_digest(step: int, spoilt: bool) -> str:
    return f"{SPOILT if spoilt else '0'}{step:063x}"
