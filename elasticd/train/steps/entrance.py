"""How a trainer comes to hold the state from which a world starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, assert_never

import mlx.core as mx
import mlx.optimizers as optim

from elasticd.checkpoints.codec import read_tensors
from elasticd.errors import GenerationLost, MismatchError, RotError, SpentError, StateError
from elasticd.train.states.imports import read_parameters
from elasticd.train.states.state import Loaded
from elasticd.train.states.updates import Update, check_follow, unpacked
from elasticd.train.steps import randomness, streams
from elasticd.train.steps.grains import Grains
from elasticd.train.steps.relief import TrainerRelief
from elasticd.train.steps.seat import Delivery, Files
from elasticd.train.steps.standing import Standing
from elasticd.train.world import TrainerWorld
from elasticd.types import Point


@dataclass(frozen=True)
class Brought:
    """A state from elsewhere: as a whole, or by the updates that lead to it from ours."""

    point: Point
    loaded: Loaded | None = None
    updates: Sequence[Update] = ()


class Entrance:
    """Puts states in place."""

    def __init__(self, standing: Standing, grains: Grains) -> None:
        self._standing, self._grains = standing, grains
        self._seat, self._state = standing.seat, standing.state
        self._relief = TrainerRelief(standing.state.model)
        self.rehearse: Callable[[Iterator[int]], None] | None = None
        """Computes grains before there is a world; None: only the script's own code can."""
        self._read_for: tuple[TrainerWorld, Brought] | None = None
        """A world's state, read already and not yet in place."""

    def settle(self, world: TrainerWorld) -> None:
        """Hold the state from which ``world`` starts.

        Raises:
            GenerationLost: this process can't, or the world has ended already.
        """
        self._equip(world)
        match world.state:
            case "init":
                self._initialise(world)
            case "load":
                self._load(world)
            case "keep":
                self._keep(world)
            case _:
                assert_never(world.state)
        self._grains.aim(world, world.point.step + 1)

    def _equip(self, world: TrainerWorld) -> None:
        self._relief.apply(world.relief)
        self._grains.recut(world.micro or self._seat.spec.batch.micro)

    def missed(self, world: TrainerWorld) -> Update | None:
        """In the body of a step whose end this process has missed: the update that the others have
        made in it, from which ``world`` starts, if that is all that is missing here. It has begun
        then.

        Raises:
            GenerationLost: this process can't go on, or the world has ended already.
        """
        want, held = world.point, self._standing.point
        if world.state != "load" or held is None or want.step != held.step + 1:
            return None
        brought = self._bring(world)
        update = brought.updates[0] if len(brought.updates) == 1 else None
        if update is None or (update.step, update.stamp) != (want.step, want.stamp):
            self._read_for = world, brought
            return None
        self._equip(world)
        self._seat.begin_update()
        self._grains.spend()
        self._grains.aim(world, want.step)
        return update

    def _initialise(self, world: TrainerWorld) -> None:
        held = self._standing.point
        if held is not None and held.step != 0:
            self._refuse(f"this trainer holds step {held.step}, not the initial state")
        if held is None:
            try:
                self._begin_with(self._first_weights())
            except StateError as error:
                self._refuse(str(error))
        self._seat.adopt(world.point)
        self._standing.point = world.point
        self._state.renew()
        self._state.normalize()
        self._state.may_renew(True)
        self._standing.publish()

    def show_first(self, at_first: Callable[[], None]) -> None:
        """Have what stands above the loop read of model and optimizer what it read at step 0,
        though this process has joined later: the newest state is put in place when the loop begins.

        Args:
            at_first: puts back what the script had made of them.
        """
        if not self._standing.set_up:
            return
        try:
            weights = self._first_weights()
        except StateError as error:
            text = (
                f"[train] init_from: {error}; what stands above the loop reads the newest weights"
            )
            print(f"elasticd: {text}", file=sys.stderr, flush=True)
            return
        at_first()
        self._begin_with(weights)

    def _first_weights(self) -> dict[str, mx.array] | None:
        """With which the job begins, if they are of a file.

        Raises:
            StateError: it can't be read.
        """
        start = self._seat.spec.train.init_from
        return read_parameters(Path(start)) if start else None

    def _begin_with(self, weights: dict[str, mx.array] | None) -> None:
        if weights is not None:
            self._state.load_parameters(weights, self._seat.spec.train.init_from)

    def _keep(self, world: TrainerWorld) -> None:
        held = self._standing.point
        if held is None or (held.step, held.stamp) != (world.point.step, world.point.stamp):
            self._refuse(f"this trainer holds {held}, not {world.point}")
        self._standing.keep(world.point)

    def _load(self, world: TrainerWorld) -> None:
        want = world.point
        brought = self._bring(world)
        with self._refusing():
            if (brought.point.step, brought.point.stamp) != (want.step, want.stamp):
                raise StateError(f"the files lead to {brought.point}, not {want}")
            self._seat.begin_update()
            self._install(brought)
        self._standing.point = want
        self._seat.end_load(want, complete=self._standing.set_up)
        self._standing.publish(loaded=True)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """A state that can't be had ends the world here; one that doesn't fit ends the job."""
        try:
            yield
        except MismatchError as error:
            self._refuse(str(error))
        except StateError as error:
            self._seat.unloaded(str(error), spent=isinstance(error, SpentError))
            self._seat.give_up_update()
            raise GenerationLost(str(error)) from None

    def _refuse(self, reason: str) -> NoReturn:
        self._seat.refuse(reason, unfit=True)
        self._seat.give_up_update()
        raise GenerationLost(reason)

    def prepare(self, delivery: Delivery) -> None:
        """Take a state, or updates, before there is a world to enter."""
        reason = ""
        try:
            brought = self._read(Files(delivery.fds))
            self._seat.begin_preparing(delivery)
            self._install(brought)
            self._standing.point = brought.point
        except GenerationLost:
            return
        except StateError as error:
            reason = str(error)
            self._seat.give_up_update()
        else:
            self._seat.end_load(brought.point, complete=self._standing.set_up)
            self._standing.publish()
            self._warm_up(delivery)
        self._seat.prepared(delivery, reason)

    def _warm_up(self, delivery: Delivery) -> None:
        """Compile, and answer the probe, while nobody waits for it yet."""
        if self.rehearse is None or not self._grains.probe.wants_grain:
            return
        self.rehearse(self._grains.rehearsal(delivery))
        self._grains.put_back()
        randomness.seed_body(self._standing.seed, self._standing.step - 1)
        self._seat.phase("idle")

    # States from elsewhere.

    def _bring(self, world: TrainerWorld) -> Brought:
        """The state from which ``world`` starts; from a second set of files if the first is rotten.

        Raises:
            GenerationLost
        """
        read, self._read_for = self._read_for, None
        if read is not None and read[0] is world:
            return read[1]
        with self._refusing():
            try:
                return self._read(self._seat.files(world))
            except RotError as error:
                self._seat.spoilt(str(error))
                return self._read(self._seat.files(world))
        raise AssertionError("unreachable")

    def _read(self, files: Files) -> Brought:
        """What files hold; closes them.

        Raises:
            SpentError: the script would have to go back to what stands above its loop.
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
            if self._standing.set_up and not loaded.set_up:
                raise SpentError(
                    "the state is from before the loop, which this script has begun: a new trainer "
                    "runs what stands above it on that state"
                )
            return Brought(loaded.point, loaded)
        point = self._standing.point
        check_follow(updates, point)
        if not all(update.complete for update in updates):
            raise StateError("the updates don't say what the script's own code changed")
        if self._state.optimizer is None:
            raise StateError("the script has not named its optimizer yet")
        assert point is not None
        last = updates[-1]
        return Brought(Point(point.lineage, last.step, last.stamp), updates=updates)

    def _install(self, brought: Brought) -> None:
        seed = self._standing.seed
        self._grains.put_back()
        if brought.loaded is not None:
            self._standing.install(brought.loaded)
        self._standing.snapshot = None
        for update in brought.updates:
            self._replay(update)
            self._standing.set_up = True  # they say what was made of the state above the loop, too
        randomness.seed_body(seed, brought.point.step)
        self._grains.restart()

    def _replay(self, update: Update) -> None:
        body = update.body
        assert body is not None
        self._state.put_own(body.before)
        randomness.seed_update(self._standing.seed, update.step)
        if not update.skips:
            with streams.HERE.at(on_cpu=update.on_cpu):
                self.update(update.state, update.gradient, update.clip_norm)
        self._state.put_own(body.after)
        self._state.put_tracked(body.tracked_plain, body.tracked)

    def update(
        self, changed: Mapping[str, mx.array], gradients: Any, clip_norm: float | None
    ) -> None:
        """Change the state in place, by a gradient and by what forward passes changed."""
        if clip_norm is not None:
            gradients, _ = optim.clip_grad_norm(gradients, clip_norm)  # type: ignore[no-untyped-call]
        if changed:  # of most models nothing: looking for the places takes a while
            places = self._state.model_slots()
            for path, array in changed.items():
                places[path].put(array)
            del places
        self._state.update(gradients)
