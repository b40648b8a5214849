"""The training thread of a trainer: what elasticd/train/steps/runner.py does, in time alone."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from elasticd.core.words.trainers import TakeState, TrainerStops
from elasticd.errors import GenerationLost
from elasticd.train.protocol.lending import LEAST_LOG_BYTES
from elasticd.train.world import TrainerWorld
from elasticd.types import Point, WorkPhase, first_stamp, next_stamp

from .calls import Over
from .chips import probe_of
from .leaving import Leaving
from .proving import prove
from .ring import Arrival, Place, grains_of, ring_of
from .starting import raises, reach_run, takes
from .states import Brought, State, Update
from .threads import Collective, Until, Wait
from .wire import sends
from .writing import tell_and_store

if TYPE_CHECKING:
    from .trainer import Trainer

Waits = Generator[Wait, None, None]
Answer = Generator[Wait, None, bool]
Taking = Generator[Wait, None, "tuple[TrainerWorld | TakeState, Any] | None"]


class Training:
    """One script, from the start of its process to its end."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.protocol = trainer, trainer.protocol
        self.cluster, self.steps = trainer.cluster, trainer.spec.train.steps
        self.place: Place | None = None
        self._world: TrainerWorld | None = None
        """The newest that was entered; it may have ended."""
        self._computed: set[int] = set()
        self._agreed = self._attached = False
        self._owes_checkpoint = self._looping = self._set_up = False
        self.calls, self.leaving = trainer.calls, Leaving(trainer)
        self._left = ""  # what was seen when the last body ended
        self._newest: Update | None = None
        """Its body is not done."""
        self._aside: tuple[TrainerWorld, Place] | tuple[TakeState, Brought] | None = None
        self._read_for: tuple[TrainerWorld, Brought] | None = None
        self._missed: Update | None = None
        self._micro = trainer.spec.batch.micro

    # --- the script -------------------------------------------------------------------------------

    def run(self) -> Waits:
        """All that the thread does."""
        if not (yield from reach_run(self.trainer)):
            return
        with suppress(Over):
            yield from self._loop()
        if not self.leaving.wish.left:
            yield from self.leaving.behind()
        self.trainer.comes_to_its_end()

    def _loop(self) -> Waits:
        if not (yield from self._enter()):
            return
        self.calls.begin(0)
        if not self._set_up:
            yield from self.calls.below_update()
            self.calls.end()
        while (yield from self.turn()):
            over, body = self.is_over, self._point.step + 1
            if not (yield from self.finish() if over else self._step()):
                break
            if not over and self.leaving.leaves(body, self.held_point, self.calls):
                if not self.calls.void:
                    self._publish()
                yield from self.leaving.behind()
                yield from self.leaving.conclude(self)
                break

    @property
    def held_point(self) -> Point | None:
        return self.protocol.held.point

    @property
    def is_over(self) -> bool:
        return self._is_over(self._world)

    @property
    def knows_last(self) -> bool:
        return self._world is not None and self._world.last >= 0

    def _is_over(self, world: TrainerWorld | None) -> bool:
        return world is not None and self._point.step >= world.ends_at(self.steps)

    def _takes(self, what: str, least: float, most: float) -> Wait:
        return takes(self.trainer, what, least, most)

    @property
    def _point(self) -> Point:
        point = self.held_point
        assert point is not None
        return point

    def _present(self) -> tuple[TrainerWorld, Place]:
        """Raises GenerationLost."""
        self.protocol.current()
        assert self._world is not None and self.place is not None
        return self._world, self.place

    def _phase(self, name: WorkPhase) -> None:
        self.trainer.phase(name)

    # --- worlds -----------------------------------------------------------------------------------

    def _enter(self) -> Answer:
        """Enter worlds until one holds; False if the job was released instead."""
        while True:
            aside, self._aside = self._aside, None
            taken = aside or (yield from self._take())
            match taken:
                case None:
                    return False
                case TakeState(serial), Brought() as brought:
                    yield from self._prepare(serial, brought)
                case TrainerWorld() as world, Place() as place:
                    self._world, self.place = world, place
                    try:
                        yield from self._settle(world, place)
                        yield from self._barrier()
                    except GenerationLost:
                        continue
                    self._owes_checkpoint = True
                    if self._looping:
                        self._checkpoint_if_due()
                    return True

    def _take(self) -> Taking:
        self._close()
        self._phase("idle")
        yield Until(lambda: self.protocol.is_called)
        with self.trainer.turn() as protocol:
            return protocol.take()

    def _rejoin(self) -> Generator[Wait, None, Literal["reduced", "again", "void", "over"]]:
        """The world has ended in the body of a step."""
        while True:
            taken = yield from self._take()
            match taken:
                case None:
                    return "over"
                case TrainerWorld() as world, place:
                    try:
                        if self.calls.void:
                            self._aside = taken
                            return "void"
                        if world.state == "keep" and not self._is_over(world):
                            self._world, self.place = world, place
                            yield from self._settle(world, place)
                            yield from self._barrier()
                            self._checkpoint_if_due()
                            return "again"
                        self._missed = yield from self._miss(world, place)
                    except GenerationLost:
                        continue
                    if self._missed is not None:
                        return "reduced"
            self._aside, self.calls.void = taken, True
            return "void"

    def _miss(self, world: TrainerWorld, place: Place) -> Generator[Wait, None, Update | None]:
        """The update that the others have made, if that is all that is missing here."""
        want = world.point
        if world.state != "load" or want.step != self._point.step + 1:
            return None
        brought = yield from self._bring(world)
        update = brought.updates[0] if len(brought.updates) == 1 else None
        if update is None or self._replayed(brought) is None:
            self._read_for = world, brought
            return None
        self._world, self.place = world, place
        self.cluster.checkers.loads(self.trainer, place.formed)
        with self.trainer.turn() as protocol:
            protocol.begin_update()
        return update

    def _bring(self, world: TrainerWorld) -> Generator[Wait, None, Brought]:
        read, self._read_for = self._read_for, None
        if read is not None and read[0] is world:
            return read[1]
        yield Until(lambda: self.protocol.state_came(world.generation))
        with self.trainer.turn() as protocol:
            _, brought = protocol.take_state()
        yield self._takes("reads", 0.0, 0.015)
        assert isinstance(brought, Brought)
        return brought

    def _close(self) -> None:
        place, self.place = self.place, None
        if place is not None and place.reducer is not None:
            place.reducer.close_data()

    def _settle(self, world: TrainerWorld, place: Place) -> Waits:
        if world.micro != self._micro:
            self._micro, self._computed = world.micro, set()
        held, checkers = self.protocol.held.point, self.cluster.checkers
        name, want = self.trainer.name, world.point
        if world.state == "load":
            checkers.loads(self.trainer, place.formed)
            yield from self._load(world)
            return
        if world.state == "init":
            assert held is None or held.step == 0, f"init over {held}"
            assert want.stamp == first_stamp(self.trainer.job, want.lineage)
            self.trainer.doubts.clear()
            self.trainer.drift = ""
            self._left = self.calls.seen
        elif held is None or (held.step, held.stamp) != (want.step, want.stamp):
            checkers.broken(f"{name} is to keep {want.step}, holds {held}")
        with self.trainer.turn() as protocol:
            protocol.adopt(want)
        self._tell()

    def _load(self, world: TrainerWorld) -> Waits:
        brought = yield from self._bring(world)
        point, want = self._replayed(brought), world.point
        if point is None or (point.step, point.stamp) != (want.step, want.stamp):
            self.cluster.checkers.broken(f"{self.trainer.name} is brought {brought}")
        with self.trainer.turn() as protocol:
            if self._set_up and not (brought.updates or brought.set_up):
                protocol.unloaded("this script is past the top of its loop", spent=True)
            protocol.begin_update()
        yield self._takes("loads", 0.0, 0.02)
        self._install(brought, want)
        self._publish(loaded=True)

    def _prepare(self, serial: int, brought: Brought) -> Waits:
        yield self._takes("reads", 0.0, 0.025)
        point = self._replayed(brought)
        if point is None:
            with self.trainer.turn() as protocol:
                protocol.prepared(serial, "the updates don't follow what is held")
            return
        try:
            with self.trainer.turn() as protocol:
                protocol.begin_preparing(serial)
        except GenerationLost:
            return
        yield self._takes("loads", 0.0, 0.03)
        self._install(brought, point)
        self._publish()
        with self.trainer.turn() as protocol:
            protocol.prepared(serial, "")

    def _replayed(self, brought: Brought) -> Point | None:
        """The state after ``brought``; None if its updates don't lead on from ours."""
        point = self.protocol.held.point if brought.updates else brought.point
        for update in brought.updates:
            point = update.after(point) if point is not None else None
        return point

    def _install(self, brought: Brought, point: Point) -> None:
        if not brought.updates:
            self.trainer.takes(brought)
            self.calls.seen, self._set_up = brought.seen, brought.set_up
        else:
            self.trainer.replays(brought.updates)
            self.calls.seen, self._set_up = brought.updates[-1].seen, True
        self._newest = None
        self.trainer.outside.took()
        self._computed = set()
        with self.trainer.turn() as protocol:
            protocol.end_load(point, complete=self._set_up)

    def _publish(self, *, loaded: bool = False) -> None:
        self._left = self.calls.seen
        self._tell(loaded=loaded)

    def _tell(self, *, loaded: bool = False) -> None:
        """What the last body has left can be read."""
        with self.trainer.turn() as protocol:
            protocol.held.may_replay(self._attached or not self.cluster.setup.script_state)
            newest, self._newest = self._newest, None
            if newest is not None:
                newest = replace(newest, complete=True, seen=self.calls.seen)
            if protocol.held.point is not None:
                state = State(protocol.held.point, 0, self._left, self._set_up, self.trainer.drift)
                protocol.hold(state, newest, loaded=loaded)

    # --- steps ------------------------------------------------------------------------------------

    def _step(self) -> Answer:
        """Make one step; False if the job was released instead."""
        number = self._point.step + 1
        yield from self.calls.above_update()
        while True:
            try:
                yield from self._halt()
                yield from self._compute(number)
                yield from self._agree()
                yield from prove(self.trainer, self._world, "grain", number)
                yield from self._reduce(number)
                break
            except GenerationLost:
                match (yield from self._rejoin()):
                    case "over":
                        return False
                    case "void":
                        self.calls.seen = self._left
                        return True
                    case "reduced":
                        break
                    case "again":
                        continue
        yield from self._update(number)
        return True

    def _halt(self) -> Waits:
        step = self._point.step
        if self.protocol.visits.is_halted(step):
            self._phase("paused")
            yield Until(lambda: not self.protocol.visits.is_halted(step))
        self.protocol.visits.halting.begins(step + 1)

    def _compute(self, number: int) -> Waits:
        self._phase("compute")
        trainer, (least, most) = self.trainer, self.cluster.setup.grain_seconds_of(number)
        while True:
            world, _ = self._present()
            missing = grains_of(world, number) - self._computed
            if not missing:
                yield from self.cluster.poisons.meets(trainer, number, None)
                return
            yield self._takes("script", least * trainer.slowness, most * trainer.slowness)
            if trainer.host.environment.unmounted:
                raises(self.trainer)
                yield Until(lambda: False)
            if trainer.stuck:
                yield Until(lambda: False)
            if (yield from self.cluster.poisons.meets(trainer, number, min(missing))):
                self._computed = set()
                continue
            if trainer.short:
                trainer.short, self._computed = False, set()
                with trainer.turn() as protocol:
                    protocol.out_of_memory("bad alloc")
            else:
                self._computed.add(min(missing))

    def _agree(self) -> Waits:
        if self._agreed:
            return
        self._phase("idle")
        with self.trainer.turn() as protocol:
            protocol.probe(probe_of(self.trainer, self._point))
        yield Until(lambda: self.protocol.visits.is_judged)
        self.protocol.current()
        self._agreed = True

    def _reduce(self, number: int) -> Waits:
        world, place = self._present()
        share = grains_of(world, number)
        self._phase("reduce")
        if place.reducer is None:
            taint = self.trainer.taint
            self.cluster.checkers.reduced(place.formed, number, {0: (self._point, share)}, taint)
        else:
            yield from self._meet("step", number, share)
            yield from sends(self.trainer, world.shares_of(number))
        self.protocol.current()
        # A freeze may come now, or when the update has begun: who comes first decides.
        yield self._takes("judgements", 0.0, 0.001)
        with self.trainer.turn() as protocol:
            protocol.begin_update()
            self._phase("update")

    def _meet(self, kind: str, step: int, share: frozenset[int]) -> Waits:
        """Take part in a collective, or raise GenerationLost."""
        _, place = self._present()
        reducer, point = place.reducer, self._point
        assert reducer is not None
        ring = ring_of(self.cluster, place.formed)
        try:
            if not reducer.alive:
                raise GenerationLost("the data socket closed")
            yield Collective(
                lambda done: ring.join(
                    (kind, step), place.rank, Arrival(reducer, point, share, done)
                )
            )
        except GenerationLost as error:
            with self.trainer.turn() as protocol:
                protocol.lose_reducer(str(error))
            raise

    def _update(self, number: int) -> Waits:
        world, before = self._world, self._point
        assert world is not None
        yield self._takes("updates", 0.001, 0.006)
        missed, self._missed = self._missed, None
        generation, on_cpu = (made := missed or world).generation, made.on_cpu
        stamp = next_stamp(before.stamp, generation, number)
        point = Point(before.lineage, number, stamp) if missed is None else world.point
        self._computed, self._attached = set(), True
        self.trainer.updates(number, on_cpu=on_cpu)
        self.trainer.outside.reduced(took=missed is not None)
        if missed is None:
            self.trainer.timed(number, idle=not world.share(number))
        with self.trainer.turn() as protocol:
            size = LEAST_LOG_BYTES // self.cluster.setup.log_limit
            done = not self.cluster.shapes[self.trainer.job].calls
            seen = self.calls.seen
            update = Update(before.stamp, generation, number, stamp, size, done, seen, on_cpu)
            self._newest = None if done or not protocol.keeps_updates else update
            protocol.end_update(point, update if protocol.keeps_updates else None)
        try:
            yield from self._barrier()
        except GenerationLost:
            pass
        else:
            self._owes_checkpoint = True
        yield self._takes("bodies", 0.0, 0.3 if self.cluster.setup.script_state else 0.002)
        yield from self.calls.below_update()
        shape = self.cluster.shapes[self.trainer.job]
        if number == shape.stops_at and shape.stops_on in ("", self.trainer.host.name):
            self.leaving.stop = self.held_point
        self.calls.end()

    def turn(self) -> Answer:
        """From one body of the loop to the next; False if the job was released instead."""
        self.trainer.outside.ran(self.protocol.held.point, void=self.calls.void)
        if not self.calls.void:
            self._set_up = True
            self._publish()
            self._owes_checkpoint = self._owes_checkpoint and not self.calls.alone
            if not self.calls.alone:
                with suppress(GenerationLost):
                    yield from prove(self.trainer, self._world, "body", self._point.step)
        else:
            self.leaving.stop = None
        self._looping, self.calls.void = True, False
        while True:
            if self._owes_checkpoint and self.protocol.world is not None:
                self._checkpoint_if_due()
            left = self._aside is not None or self.protocol.world is None
            if left and not (yield from self._enter()):
                return False
            if not self._asks():
                self.calls.begin(self._point.step + 1)
                return True
            yield from self._ask()

    def _asks(self) -> bool:
        undecided = self._world is not None and not (self.is_over or self.knows_last)
        return undecided and self.leaving.asks(self.held_point)

    def _ask(self) -> Waits:
        self._phase("idle")
        if self.protocol.world is not None:
            with self.trainer.turn() as protocol:
                generation = protocol.current().generation
                protocol.say(TrainerStops(generation, self._point.step, "the script asked"))
            yield Until(lambda: self.protocol.world is None)

    def _barrier(self) -> Waits:
        _, place = self._present()
        point = self._point
        if place.reducer is not None:
            self._phase("reduce")
            yield from self._meet("barrier", point.step, frozenset())
        with self.trainer.turn() as protocol:
            protocol.commit(point.step)
            self.trainer.fresh = False
            self._phase("user")
            self.cluster.checkers.committed(self.trainer, point)

    def _checkpoint_if_due(self) -> None:
        if self._asks():
            return
        self._owes_checkpoint = False
        world, point, trainer = self._world, self._point, self.trainer
        assert world is not None
        tell_and_store(trainer, world, point, self._left)

    def finish(self) -> Answer:
        """Wait at the end of the job; False when released."""
        self._phase("idle")
        with self.trainer.turn() as protocol:
            protocol.finish(self._point)
        yield Until(lambda: self.protocol.may_end)
        if self.protocol.released:
            return False
        return (yield from self._enter())
