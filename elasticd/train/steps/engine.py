"""One training job in one process: the state, the step in hand, and the world it is in.

The training thread alone uses it. Whatever ends a world shows as ``GenerationLost``; the engine
then enters the next world and computes what that one lacks.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map
from numpy.typing import NDArray

from elasticd.checkpoints.codec import read_tensors
from elasticd.errors import GenerationLost, MismatchError, RotError, StateError
from elasticd.ipc.plan import ChunkPlan
from elasticd.recovery import tree
from elasticd.recovery.recheck import Check, choose
from elasticd.recovery.relief import room_text
from elasticd.recovery.signatures import of_text
from elasticd.train.states.imports import read_parameters
from elasticd.train.states.state import Loaded, Snapshot, TrainingState, model_tree
from elasticd.train.states.updates import Update, check_follow, unpacked
from elasticd.train.steps import randomness
from elasticd.train.steps.accumulate import GrainSums
from elasticd.train.steps.forward import Forward
from elasticd.train.steps.layout import Layout, Reduced, Vector
from elasticd.train.steps.probe import RUNS, Probe
from elasticd.train.steps.progress import Lately
from elasticd.train.steps.relief import Relief, room_bytes
from elasticd.train.steps.seat import Delivery, Files, Seat
from elasticd.train.world import TrainerWorld
from elasticd.types import Point, Tag, next_stamp


@dataclass(frozen=True)
class Brought:
    """A state from elsewhere: as a whole, or by the updates that lead to it from ours."""

    point: Point
    loaded: Loaded | None = None
    updates: Sequence[Update] = ()


@dataclass
class _Rechecks:
    """Grains of other ranks' that this one computes, too."""

    under_way: bool = False
    begun: tuple[Tag, int] | None = None

    def begin(self, generation: Tag, step: int) -> bool:
        """Whether one is due in this step of this world: once."""
        if self.begun == (generation, step):
            return False
        self.begun, self.under_way = (generation, step), True
        return True


class Engine:
    """Runs steps for :class:`elasticd.train.run.Run`."""

    def __init__(self, seat: Seat, state: TrainingState, cut: Callable[[int], None]) -> None:
        """``cut`` is called when grains get another number of samples."""
        spec = seat.spec
        self.seat, self.state = seat, state
        self.seed, self.steps, self.grains = spec.train.seed, spec.train.steps, spec.grains
        self.global_size, self._micro, self._cut = spec.batch.global_, spec.batch.micro, cut
        self._relief = Relief(state.model)
        self.rehearse: Callable[[Iterator[int]], None] | None = None
        """Computes grains before there is a world; None: only the script's own code can."""
        self.world: TrainerWorld | None = None
        self.point: Point | None = None
        self._sums = GrainSums(self.grains)
        self._grain_times, self._update_times = Lately(), Lately()
        self._probe = Probe()
        self._agreed = False
        self._rechecks = _Rechecks()
        self._forward = Forward(state)
        self._layout: Layout | None = None
        self._flat: mx.array | None = None
        self._plan: tuple[object, ChunkPlan] | None = None
        self._body_matters = self._owes_checkpoint = False
        self._skips = False
        self._stall_seconds = 0.0
        self._snapshot: Snapshot | None = None

    # Worlds.

    def enter(self) -> bool:
        """Enter worlds until one holds, and commit the state from which it starts.

        False if the job was released instead.
        """
        while True:
            world = self.seat.take()
            if world is None:
                return False
            if isinstance(world, Delivery):
                self._prepare(world)
                continue
            try:
                self._settle(world)
                assert self.point is not None
                self.seat.barrier(self.point)
            except GenerationLost:
                continue
            self._checkpoint_if_due()
            return True

    def _settle(self, world: TrainerWorld) -> None:
        """Hold the state from which ``world`` starts.

        Raises:
            GenerationLost: this process can't, or the world has ended already.
        """
        self._relief.apply(world.relief)
        self._recut(world.micro or self.seat.spec.batch.micro)
        match world.state:
            case "init":
                self._initialise(world)
            case "load":
                self._load(world)
            case _:
                self._keep(world)
        self.world = world
        self._sums.aim(world.share(world.point.step + 1))

    def _recut(self, micro: int) -> None:
        """Grains of ``micro`` samples from now on; what was computed of others is void."""
        if micro == self._micro:
            return
        self._micro, self.grains = micro, -(-self.global_size // micro)
        self._grain_times.forget()
        self._sums, self._plan = GrainSums(self.grains), None
        self._probe.restart()
        self._cut(micro)

    def ran_out(self, error: Exception) -> bool:
        """Whether ``error`` says that an allocation failed, and a world with relief will come. The
        state stays; what was computed of the step is dropped."""
        text = f"{type(error).__name__}: {error}"
        found = of_text(text)
        if found is None or found[0] != "oom":
            return False
        if not self.seat.out_of_memory(f"{text[:400]} {room_text(room_bytes())}"):
            return False
        self._sums.clear()
        self._probe.restart()
        self._flat = None
        self._forward.restore()
        mx.clear_cache()
        return True

    def _initialise(self, world: TrainerWorld) -> None:
        if self.point is not None and self.point.step != 0:
            self._refuse(f"this trainer holds step {self.point.step}, not the initial state")
        if start := self.seat.spec.train.init_from:
            try:
                self.state.load_parameters(read_parameters(Path(start)), start)
            except StateError as error:
                self._refuse(str(error))
        self.seat.adopt(world.point)
        self.point = world.point
        self.state.normalize()
        self._publish()

    def _keep(self, world: TrainerWorld) -> None:
        held = self.point
        if held is None or (held.step, held.stamp) != (world.point.step, world.point.stamp):
            self._refuse(f"this trainer holds {held}, not {world.point}")
        self.seat.adopt(world.point)
        self.point = world.point
        assert self._snapshot is not None
        self._snapshot = replace(self._snapshot, point=world.point)
        self.seat.hold(self._snapshot)

    def _load(self, world: TrainerWorld) -> None:
        want = world.point
        try:
            brought = self._bring(world)
            if (brought.point.step, brought.point.stamp) != (want.step, want.stamp):
                raise StateError(f"the files lead to {brought.point}, not {want}")
            self.seat.begin_update()
            self._install(brought)
        except MismatchError as error:
            self._refuse(str(error))
        except StateError as error:
            self.seat.unloaded(str(error))
            self.seat.give_up_update()
            raise GenerationLost(str(error)) from None
        self.point = want
        self.seat.end_load(want)
        self._publish(loaded=True)

    def _prepare(self, delivery: Delivery) -> None:
        """Take a state, or updates, before there is a world to enter."""
        reason = ""
        try:
            brought = self._read(Files(delivery.fds))
            self.seat.begin_preparing(delivery)
            self._install(brought)
            self.point = brought.point
        except GenerationLost:
            return
        except StateError as error:
            reason = str(error)
        if reason:
            self.seat.give_up_update()
        else:
            assert self.point is not None
            self.seat.end_load(self.point)
            self._publish()
            self._warm_up(delivery)
        self.seat.prepared(delivery, reason)

    def _warm_up(self, delivery: Delivery) -> None:
        """Compile, and answer the probe, while nobody waits for it yet."""
        if self.rehearse is None or not self._probe.wants_grain:
            return
        assert self.point is not None
        self.rehearse(self._rehearsal(delivery))
        self._forward.restore()
        self._forward.forget()
        randomness.seed_body(self.seed, self.point.step)
        self.seat.phase("idle")

    def _rehearsal(self, delivery: Delivery) -> Iterator[int]:
        for _ in range(RUNS):
            if self._probe.wants_grain and self.seat.idle_since(delivery):
                self._forward.begin()
                yield 0

    def _bring(self, world: TrainerWorld) -> Brought:
        """The state from which ``world`` starts; from a second set of files if the first is rotten.

        Raises:
            StateError, GenerationLost
        """
        try:
            return self._read(self.seat.files(world))
        except RotError as error:
            self.seat.spoilt(str(error))
            return self._read(self.seat.files(world))

    def _read(self, files: Files) -> Brought:
        """What files hold; closes them.

        Raises:
            RotError: their digests don't fit.
            StateError: they are damaged, or don't lead on from the state in place.
        """
        try:
            tensors, metadata = read_tensors(files.fds, files.digests)
        finally:
            for fd in files.fds:
                os.close(fd)
        updates = unpacked(tensors, metadata)
        if updates is None:
            loaded = Loaded.from_files(tensors, metadata)
            return Brought(loaded.point, loaded)
        check_follow(updates, self.point)
        if self.state.optimizer is None:
            raise StateError("the script has not named its optimizer yet")
        assert self.point is not None
        last = updates[-1]
        return Brought(Point(self.point.lineage, last.step, last.stamp), updates=updates)

    def _install(self, brought: Brought) -> None:
        self._forward.restore()
        self._forward.forget()
        if brought.loaded is not None:
            self.state.install(brought.loaded)
        for update in brought.updates:
            randomness.seed_update(self.seed, update.step)
            if not update.skips:
                self._update(update.state, self.state.optimizer, update.gradients)
        randomness.seed_body(self.seed, brought.point.step)
        self._sums.clear()
        self._probe.restart()

    def _refuse(self, reason: str) -> NoReturn:
        self.seat.refuse(reason)
        self.seat.give_up_update()
        raise GenerationLost(reason)

    def _publish(self, *, loaded: bool = False) -> None:
        assert self.point is not None
        started = time.monotonic()
        samples = self.point.step * self.global_size
        self._snapshot = self.state.capture(self.point, self.seed, samples)
        self._stall_seconds = time.monotonic() - started
        alone = not (self._body_matters or self.state.tracks)
        self.seat.replays(gives=alone, takes=alone and self.state.optimizer is not None)
        self.seat.hold(self._snapshot, loaded=loaded)

    # The script's own code between steps.

    def end_body(self) -> None:
        """The script's code after a step is done: the state is what it left."""
        before = self._snapshot
        self._publish()
        after = self._snapshot
        assert after is not None
        if before is not None and self.point is not None and self.point.step > 0:
            self._body_matters = self._body_matters or any(
                before.tensors.get(name) is not array for name, array in after.tensors.items()
            )
        if self._owes_checkpoint:
            self._checkpoint_if_due()

    @property
    def finished(self) -> bool:
        """Whether the last step is applied."""
        assert self.point is not None
        return self.point.step >= self.steps

    def finish(self) -> bool:
        """Wait at the end of the job. False if a world with more steps came instead."""
        assert self.point is not None
        while self.finished:
            if self.seat.finish(self.point):
                return True
            if not self.enter():
                return True
        return False

    # Grains.

    def grain_numbers(self) -> Iterator[int]:
        """The grains that are still to be computed, each until it has been accumulated.

        Raises:
            GenerationLost: the world has ended.
        """
        assert self.point is not None
        self.seat.halt(self.point)
        self.seat.phase("compute")
        while True:
            self.seat.check()
            self._rechecks.under_way = False
            if self._probe.wants_grain:
                grain = 0
            elif missing := self._sums.missing():
                grain = missing[0]
            elif (again := self._to_recheck()) is not None:
                grain = again
            else:
                return
            started = time.monotonic()
            self._forward.begin()
            yield grain
            self._grain_times.took(time.monotonic() - started)

    def _check_of_step(self) -> Check | None:
        world, every = self.world, self.seat.spec.recovery.recheck_every
        if world is None or not every:
            return None
        return choose(self.seed, self.step, every, world.shares_of(self.step))

    def _to_recheck(self) -> int | None:
        """A grain of another rank's that this one has to compute, too, in this step."""
        world, check = self.world, self._check_of_step()
        if world is None or check is None or world.rank not in check.checkers:
            return None
        return check.grain if self._rechecks.begin(world.generation, self.step) else None

    @property
    def step(self) -> int:
        """The step that is being computed."""
        assert self.point is not None
        return self.point.step + 1

    def accumulate(self, grain: int, loss: mx.array, weight: Any, gradients: Any) -> None:
        """Take in the loss and gradients of one grain."""
        try:
            self._take_in(grain, loss, weight, gradients)
        except (RuntimeError, MemoryError) as error:
            if not self.ran_out(error):
                raise

    def _take_in(self, grain: int, loss: mx.array, weight: Any, gradients: Any) -> None:
        if self._layout is None:
            changed = self._forward.find_changes(loss, gradients)
            self._layout = Layout.of(gradients, self._forward.base, changed)
            self._forward.accept(self._layout)
        layout = self._layout
        vector = layout.pack(loss, weight, self._forward.state_of(layout), gradients)
        replaced = self._forward.replaced(layout)
        if self._probe.wants_grain:
            mx.eval(vector, replaced, gradients)
            self._take_probe(vector, gradients)
        elif self._rechecks.under_way:
            self._tell_of(grain, vector, replaced)
        else:
            check = self._check_of_step()
            if check is not None and check.grain == grain:
                self._tell_of(grain, vector, replaced)
            mx.eval(replaced)
            self._sums.add(grain, vector)
        self._forward.refuse_unknown_changes(replaced)

    def _tell_of(self, grain: int, vector: Vector, replaced: Mapping[str, mx.array]) -> None:
        assert self.world is not None
        mx.eval(vector, replaced)
        self.seat.rechecked(self.world, self.step, grain, list(vector))

    def _take_probe(self, vector: Vector, gradients: Any) -> None:
        layout, point = self._layout, self.point
        assert layout is not None and point is not None
        if not self._probe.take(vector):
            return
        self._forward.restore()
        returned = [a.astype(leaf.dtype) for leaf, a in layout.gradient_leaves(gradients)]
        tree_of = layout.gradient_tree(returned)
        self._probe.conclude(layout, self.state, point.stamp, tree_of, self.seed)
        if 0 in self._sums.missing():
            self._sums.add(0, vector)

    # Reduction and update.

    def reduce(self) -> Reduced:
        """Sum the step over the world; the update has begun when it returns.

        Raises:
            GenerationLost: the world has ended; the grains' sums are kept.
        """
        world, layout = self.world, self._layout
        assert world is not None and layout is not None
        if not self._agreed:
            assert self._probe.result is not None
            self.seat.agree(self._probe.result)
            self._agreed = True
        total = self._total(world, layout)
        self._judge_loss(total)
        self.seat.begin_update()
        self._snapshot = None
        reduced = layout.mean(total, self.grains)
        self._sums.clear()
        self._forward.restore()
        self._forward.forget()
        return reduced

    def _judge_loss(self, total: Vector) -> None:
        """What job.toml wants if the loss is not finite: the same on every rank, since all have its
        bits."""
        weighted, weight = np.array(total[0])
        loss = float(weighted / weight) if weight else 0.0
        self._skips = False
        if math.isfinite(loss):
            return
        policy = self.seat.spec.recovery.on_nan
        if policy == "stop":
            reason = f'the loss of step {self.step} is {loss} (recovery.on_nan = "stop")'
            self.seat.refuse(reason)
            raise GenerationLost(reason)
        self.seat.not_finite(self.step, loss, policy)
        self._skips = True

    def _total(self, world: TrainerWorld, layout: Layout) -> Vector:
        if world.size == 1:
            total = self._sums.total()
            assert total is not None
            return total
        plan = self._plan_for(world)
        if world.reduction == "fast":
            own = self._sums.total()
            parts = {} if own is None else {(0, self.grains): own}
        else:
            parts = self._sums.parts()
        views = {
            node: [_view(piece) for piece in part if piece.size] for node, part in parts.items()
        }
        if self._flat is None:
            self._flat = mx.zeros((layout.size,), mx.float32)
            mx.eval(self._flat)
        self.seat.reduce(self.step, plan, views, _view(self._flat))
        return layout.split(self._flat)

    def _plan_for(self, world: TrainerWorld) -> ChunkPlan:
        shares = world.shares_of(self.step)
        if self._plan is None or self._plan[0] is not shares:
            parts = tuple(tree.cover(share, self.grains) for share in shares)
            self._plan = shares, ChunkPlan(self.grains, parts)
        return self._plan[1]

    def zero_gradients(self) -> Any:
        """A gradient that does nothing."""
        return tree_map(mx.zeros_like, model_tree(self.state.model, trainable=True))

    def apply(self, reduced: Reduced, optimizer: Any, gradients: Any) -> bool:
        """Update with ``gradients``, and commit. False if meanwhile another world has brought a
        later state, so that the script's code after this step would see that one."""
        world, point = self.world, self.point
        assert world is not None and point is not None
        self.state.attach(optimizer)
        step = self.step
        update = None
        if self.seat.keeps_updates():
            state = {} if self._skips else reduced.state
            update = Update.of(point, world.generation, self._skips, state, gradients)
        started = time.monotonic()
        randomness.seed_update(self.seed, step)
        if not self._skips:
            self._update(reduced.state, optimizer, gradients)
            self._update_times.took(time.monotonic() - started)
        idle = not world.share(step)
        self.seat.timed(0.0 if idle else self._grain_times.seconds, self._update_times.seconds)
        stamp = next_stamp(point.stamp, world.generation, step)
        self.point = Point(point.lineage, step, stamp)
        self._sums.aim(world.share(step + 1))
        self.seat.end_update(self.point, None if self._skips else reduced.loss, update)
        randomness.seed_body(self.seed, step)
        self._commit()
        return self.point.step == step

    def _update(self, state: Mapping[str, mx.array], optimizer: Any, gradients: Any) -> None:
        places = self.state.model_slots()
        for path, array in state.items():
            places[path].put(array)
        del places
        optimizer.update(self.state.model, gradients)
        self.state.evaluate()

    def _commit(self) -> None:
        """Commit the step just applied: before the script's code goes on, unless what that code
        does is part of the state, which nobody can be given before it is done."""
        assert self.point is not None
        lazily = self._body_matters or self.state.tracks
        if not lazily:
            self._publish()
        try:
            self.seat.barrier(self.point)
        except GenerationLost:
            if not lazily:
                self.enter()
            return
        self._owes_checkpoint = lazily
        if not lazily:
            self._checkpoint_if_due()

    def _checkpoint_if_due(self) -> None:
        self._owes_checkpoint = False
        world, snapshot = self.world, self._snapshot
        if world is None or snapshot is None:
            return
        every = self.seat.spec.recovery.verify_every
        if every and world.size > 1 and snapshot.point.step % every == 0:
            self.seat.verify(world, snapshot)
        if world.checkpoint_due(snapshot.point.step, self.steps):
            self.seat.checkpoint(world, snapshot, self._stall_seconds)


def _view(array: mx.array) -> NDArray[np.float32]:
    """The buffer of an evaluated flat float32 array. Writing to it writes to the array."""
    return np.frombuffer(memoryview(array), np.float32)  # type: ignore[arg-type]
