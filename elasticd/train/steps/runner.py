"""One training job in one process: the state, the step in hand, and the world it is in.

The training thread alone uses it. Whatever ends a world shows as ``GenerationLost``; the runner
then enters the next world and computes what that one lacks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

import mlx.core as mx
from mlx.utils import tree_map

from elasticd.errors import GenerationLost
from elasticd.recovery.relief import room_text
from elasticd.recovery.signatures import of_text
from elasticd.train.states.stale import name_stale
from elasticd.train.states.state import TrainingState, model_tree
from elasticd.train.states.updates import Reduced, Update
from elasticd.train.steps import randomness, streams
from elasticd.train.steps.byrank import ByRank
from elasticd.train.steps.calling import BEHIND, IN_GRAINS, MainCalls
from elasticd.train.steps.ending import StopWish
from elasticd.train.steps.entrance import Entrance
from elasticd.train.steps.finite import skips
from elasticd.train.steps.grains import Grains
from elasticd.train.steps.logs import RunLogs
from elasticd.train.steps.progress import Lately
from elasticd.train.steps.relief import room_bytes
from elasticd.train.steps.seat import Delivery, Seat
from elasticd.train.steps.standing import Standing
from elasticd.train.steps.storing import Storing
from elasticd.train.steps.summing import Summing
from elasticd.train.steps.weighted import GrainLoss
from elasticd.train.world import TrainerWorld
from elasticd.types import Point, next_stamp


class StepRunner:
    """Runs steps for :class:`elasticd.train.run.Run`."""

    def __init__(self, seat: Seat, state: TrainingState, cut: Callable[[int], None]) -> None:
        """``cut`` is called when grains get another number of samples."""
        self.seat, self.state = seat, state
        self.seed, self.steps = seat.spec.train.seed, seat.spec.train.steps
        self._standing = Standing(seat, state)
        self._grains = Grains(self._standing, cut)
        self.entrance = Entrance(self._standing, self._grains)
        self._summing = Summing(seat, self._grains)
        self._update_times = Lately()
        self._agreed = False
        self._storing = Storing(seat, self._standing)
        self._skips = self._looping = False
        self.calls = MainCalls(seat, self._standing, state)
        self._aside: TrainerWorld | Delivery | None = None
        """What ended the last body, to be entered before anything else."""
        self.ending, self.logs = StopWish(), RunLogs(self._standing)
        self.by_rank = ByRank(self._standing, self.logs)
        self._missed: Update | None = None
        """The step under way was reduced by the others, who have applied this."""

    @property
    def world(self) -> TrainerWorld | None:
        """The newest that was entered; it may have ended."""
        return self._grains.world

    @property
    def point(self) -> Point:
        """The state in place."""
        point = self._standing.point
        assert point is not None
        return point

    @property
    def step(self) -> int:
        """The step that is being computed."""
        return self._standing.step

    @property
    def finished(self) -> bool:
        """Whether the last step is applied."""
        return self.world is not None and self._is_over(self.world)

    def _is_over(self, world: TrainerWorld) -> bool:
        return self.point.step >= world.ends_at(self.steps)

    # Worlds.

    def enter(self) -> bool:
        """Enter worlds until one holds, and commit the state from which it starts; False if the job
        was released instead. Only where no body is under way: it may bring another state."""
        while True:
            aside, self._aside = self._aside, None
            arrival = aside or self.seat.take()
            if arrival is None:
                return False
            if isinstance(arrival, Delivery):
                self.entrance.prepare(arrival)
                continue
            try:
                self.entrance.settle(arrival)
                self.seat.barrier(self.point)
            except GenerationLost:
                continue
            self._storing.owed = True
            if self._looping:
                self._look()
            return True

    def rejoin(self) -> Reduced | Literal["again", "void", "over"]:
        """The world has ended in the body of a step. What is there instead: the step as the others
        have reduced it; a world in which it is computed ``again``, as far as it isn't yet; one that
        starts from another state, so that this body is ``void``; nothing, as the job is ``over``.
        """
        self.calls.shut()
        while True:
            arrival = self.seat.take()
            if arrival is None:
                return "over"
            if not isinstance(arrival, Delivery) and not self.calls.void:
                try:
                    if arrival.state == "keep" and not self._is_over(arrival):
                        self.entrance.settle(arrival)
                        self.seat.barrier(self.point)
                        self._look()
                        return "again"
                    self._missed = self.entrance.missed(arrival)
                except GenerationLost:
                    continue
                if self._missed is not None:
                    self._skips = self._missed.skips
                    self._standing.ranks.believe(self._missed.ranks)
                    randomness.seed_reduced(self.seed, self.step)
                    return self._missed.as_reduced()
            self._aside, self.calls.void = arrival, True
            return "void"

    def finish(self) -> bool:
        """Wait at the end of the job. False if a world with more steps came instead."""
        while self.finished:
            with contextlib.suppress(GenerationLost):
                self.by_rank.level(self.world)
                if self.seat.finish(self.point):
                    self.logs.end()
                    self.calls.shut(BEHIND)
                    return True
            if not self.enter():
                return True
        return False

    def ran_out(self, error: Exception) -> bool:
        """Whether ``error`` says that an allocation failed, and a world with relief will come. The
        state stays; what was computed of the step is dropped."""
        text = f"{type(error).__name__}: {error}"
        found = of_text(text)
        if found is None or found[0] != "oom":
            return False
        if not self.seat.out_of_memory(f"{text[:400]} {room_text(room_bytes())}"):
            return False
        self._summing.give_back()
        self._grains.renounce()
        mx.clear_cache()
        return True

    # Grains.

    def grain_numbers(self) -> Iterator[int]:
        """The grains that are still to be computed, each until it has been accumulated.

        Raises:
            GenerationLost: the world has ended.
        """
        self.calls.shut(IN_GRAINS)
        self.seat.halt(self.point)
        self.by_rank.level(self.world)
        self.seat.phase("compute")
        yield from self._grains.missing()

    def accumulate(self, grain: int, loss: GrainLoss, gradients: Any) -> None:
        """Take in the loss and gradients of one grain."""
        try:
            self._grains.take_in(grain, loss, gradients)
        except (RuntimeError, MemoryError) as error:
            if not self.ran_out(error):
                raise

    # Reduction and update.

    def reduce(self, *, as_they_are: bool) -> Reduced:
        """Sum the step over the world; the update has begun when it returns. ``as_they_are``:
        the gradients are applied as they come, so all of them have to be finite.

        Raises:
            GenerationLost: the world has ended; the grains' sums are kept.
        """
        world, layout = self.world, self._grains.layout
        assert world is not None and layout is not None
        self.calls.shut()
        if not self._agreed:
            result = self._grains.probe.result
            assert result is not None
            self.seat.agree(result)
            self._agreed = True
        self._grains.proving.await_grain(world, self.step)
        told = self.by_rank.hear(world, self.step)
        total = self._summing.total(world, layout, self.step)
        with streams.HERE.at(on_cpu=world.on_cpu):
            reduced = layout.mean(total, self._grains.count, finite=as_they_are)
        self._grains.name_means(reduced)
        self._skips = skips(self.seat, self.step, reduced)
        self.seat.begin_update()
        self._standing.ranks.believe(told)
        self._grains.spend()
        randomness.seed_reduced(self.seed, self.step)
        return reduced

    def zero_gradients(self) -> Any:
        """A gradient that does nothing."""
        return tree_map(mx.zeros_like, model_tree(self.state.model, trainable=True))

    def apply(
        self, reduced: Reduced, optimizer: Any, gradients: Any, clip_norm: float | None
    ) -> None:
        """Update with ``gradients``, clipped to ``clip_norm``, and commit; without an optimizer
        commit only."""
        world, before = self.world, self.point
        assert world is not None
        told = self._standing.loss = None if self._skips else reduced.loss
        if optimizer is None:
            self._skips = True
        else:
            self.state.attach(optimizer)
        missed, self._missed = self._missed, None
        update, touched, on_cpu = None, None, (missed or world).on_cpu
        if self.seat.keeps_updates():
            generation = world.generation if missed is None else missed.generation
            made = Update.of(before, generation, self._skips, reduced, gradients, clip_norm)
            update = made and replace(made, ranks=self._standing.ranks.told, on_cpu=on_cpu)
            touched = self._standing.touched()
        self._standing.snapshot = None
        started = time.monotonic()
        randomness.seed_update(self.seed, self.step)
        if not self._skips:
            with streams.HERE.at(on_cpu=on_cpu):
                self.entrance.update(reduced.state, gradients, clip_norm)
            self._update_times.took(time.monotonic() - started)
        if missed is not None:
            self._standing.point = world.point
        else:
            stamp = next_stamp(before.stamp, world.generation, self.step)
            self._standing.point = Point(before.lineage, self.step, stamp)
            idle = not world.share(self.point.step)
            self.seat.timed(0.0 if idle else self._grains.times.seconds, self._update_times.seconds)
        self._grains.aim(world, self.step)
        self.seat.end_update(self.point, told, update)
        self._commit()
        if update is not None and self.seat.owes_update():
            self._standing.updated(update, touched)
        randomness.seed_body(self.seed, self.point.step)

    # Commits.

    def _commit(self) -> None:
        """All members have applied the step; or the world has ended, and the next one says it."""
        try:
            self.seat.barrier(self.point)
        except GenerationLost:
            return
        self._storing.owed = True

    def _in_world(self) -> bool:
        with contextlib.suppress(GenerationLost):
            self.seat.check()
            return True
        return False

    def turn(self) -> bool:
        """From one body of the loop to the next, or to the first: the state is what the script's
        own code has left. False if the job was released meanwhile."""
        self.calls.end()
        if self.calls.void or self.ending.left or (not self._looping and self._standing.set_up):
            # That code ran on a state which isn't, or isn't any longer, the job's.
            self._grains.put_back()
            self._standing.restore()
            self.logs.drop()
        else:
            if not self._standing.set_up:
                self._standing.state.renew()
                self._standing.state.may_renew(False)
            self._standing.set_up = True
            self._standing.ranks.hold()
            self._standing.publish()
            self.logs.body_ends()
            if self._looping:
                name_stale(self.state.stale, aloud=self.world is not None and self.world.rank == 0)
        counts = not self.calls.uncounted
        if self.calls.alone:
            self._storing.owed = False  # what the body has left is nobody's
        elif counts:
            self._grains.proving.body(self.world, self._standing.snapshot)
        self.ending.body_ends(self.point, counts)
        self._looping, self.calls.void = True, False
        while True:
            # Of a world that has ended nothing is stored: the body may have gone on with what calls
            # returned in the next one, which stores its own.
            if self._storing.owed and self._in_world():
                self._look()
            if (self._aside is not None or not self._in_world()) and not self.enter():
                return False
            reason = self._asks_to_stop()
            if not reason:
                break
            with contextlib.suppress(GenerationLost):
                self.seat.stop(self.point, reason)
        randomness.seed_top(self.seed, self.step)
        if not self.ending.left:
            self.calls.begin(self.step)
        return True

    def leave(self, applied: bool) -> None:
        """The script has left its loop, in a body that had ``applied`` its step."""
        if self.ending.forked:
            return
        self.calls.shut(BEHIND)
        if applied and not self.calls.void:
            self._standing.publish()
            self.logs.body_ends()
        self.logs.end()
        self.ending.leave(self.point, not self.calls.uncounted)

    def _asks_to_stop(self) -> str:
        """Why the script wants to go no further, where nobody knows yet whether it may."""
        return "" if self.finished else self.ending.asks(self.point, self.world)

    def _look(self) -> None:
        if not self._asks_to_stop():
            # Else it is not consistent before all know whether it is the last.
            self._storing.look(self.world)
