"""The grains of the step in hand: which are missing, and what came of the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from elasticd.errors import UsageError
from elasticd.recovery.recheck import Check, choose
from elasticd.train.states.updates import Reduced
from elasticd.train.steps.accumulate import GrainSums
from elasticd.train.steps.forward import Forward
from elasticd.train.steps.layout import Layout, Vector, flatten
from elasticd.train.steps.leaves import Leaves
from elasticd.train.steps.ownstate import name_own
from elasticd.train.steps.probe import RUNS, GrainProbe
from elasticd.train.steps.progress import Lately
from elasticd.train.steps.proving import Proving
from elasticd.train.steps.sampling import Batches
from elasticd.train.steps.seat import Delivery
from elasticd.train.steps.standing import Standing
from elasticd.train.steps.weighted import GrainLoss
from elasticd.train.world import TrainerWorld
from elasticd.types import Tag


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


class Grains:
    """Sums of one step at a time, computed from the state in place."""

    def __init__(self, standing: Standing, cut: Callable[[int], None]) -> None:
        """``cut`` is called when grains get another number of samples."""
        spec = standing.seat.spec
        self._standing, self._seat = standing, standing.seat
        self._micro, self._global_size, self._cut = spec.batch.micro, spec.batch.global_, cut
        self.count = spec.grains
        """Of a global batch."""
        self.world: TrainerWorld | None = None
        """The newest that was entered; it may have ended."""
        self.sums = GrainSums(self.count)
        self.times = Lately()
        self.probe = GrainProbe()
        self._leaves = Leaves(standing.state)
        self._given: frozenset[str] | None = None
        """Of which arrays the step's grains have a gradient."""
        self._forward = Forward(standing.state)
        self._rechecks = _Rechecks()
        self.proving = Proving(standing.seat)
        self._only_shown = False
        """The grain that is computed is another rank's, or was computed before."""

    @property
    def layout(self) -> Layout | None:
        """Of the sums of the step in hand."""
        return self._leaves.layout

    @property
    def _beside(self) -> bool:
        """Whether the grain that is computed is one that this rank's sums don't need."""
        return self._rechecks.under_way or self._only_shown

    # Which.

    def recut(self, micro: int) -> None:
        """Grains of ``micro`` samples from now on; what was computed of others is void."""
        if micro == self._micro:
            return
        self._micro, self.count = micro, Batches(self._global_size, micro).grains
        self.times.forget()
        self.sums = GrainSums(self.count)
        self.probe.restart()
        self._forward.drop_trial()
        self._cut(micro)

    def aim(self, world: TrainerWorld, step: int) -> None:
        """This member's share of ``step`` in ``world`` is to be computed."""
        self.world = world
        self.sums.aim(world.share(step))

    def missing(self) -> Iterator[int]:
        """The grains that are still to be computed, each until it has been accumulated.

        Raises:
            GenerationLost: the world has ended.
        """
        self._leaves.look()
        while True:
            self._seat.check()
            self._rechecks.under_way = self._only_shown = False
            if self.probe.wants_grain:
                grain = 0
            elif missing := self.sums.missing():
                grain = missing[0]
            elif (again := self._to_recheck()) is not None:
                grain = again
            elif (shown := self.proving.grain(self.world, self._standing.step)) is not None:
                self._only_shown, grain = True, shown
            else:
                return
            started = time.monotonic()
            self._forward.begin(None if self._beside else grain)
            yield grain
            if not self._forward.on_trial:
                self.times.took(time.monotonic() - started)

    def rehearsal(self, delivery: Delivery) -> Iterator[int]:
        """For the probe, while nothing else is asked of us."""
        self._leaves.look()
        for _ in range(RUNS):
            if self.probe.wants_grain and self._seat.idle_since(delivery):
                self._forward.begin(0)
                yield 0

    def _check_of_step(self) -> Check | None:
        world, every = self.world, self._seat.spec.recovery.recheck_every
        if world is None or not every:
            return None
        step = self._standing.step
        return choose(self._standing.seed, step, every, world.shares_of(step))

    def _to_recheck(self) -> int | None:
        """A grain of another rank's that this one has to compute, too, in this step."""
        world, check = self.world, self._check_of_step()
        if world is None or check is None or world.rank not in check.checkers:
            return None
        return check.grain if self._rechecks.begin(world.generation, self._standing.step) else None

    # What came of them.

    def take_in(self, grain: int, loss: GrainLoss, gradients: Any) -> None:
        """The loss and gradients of one grain."""
        self.probe.passed()
        layout = self._layout_for(loss, gradients)
        given = layout.given(gradients)
        self._check_given(given)
        forward = self._forward
        vector = layout.pack(loss, forward.base, forward.state_of(layout), given)
        replaced = forward.replaced(layout, given)
        if (self.probe.wants_grain or not self._beside) and forward.tries_again(grain, replaced):
            return
        if self.probe.wants_grain:
            mx.eval(vector, replaced, given, forward.state_of(layout))
            self._take_probe(layout, vector, given)
        elif self._rechecks.under_way:
            self._tell_of(grain, vector, replaced)
        elif self._only_shown:
            self._show(grain, vector, replaced)
        else:
            check = self._check_of_step()
            if check is not None and check.grain == grain:
                self._tell_of(grain, vector, replaced)
            if self.proving.grain(self.world, self._standing.step) == grain:
                self._show(grain, vector, replaced)
            mx.eval(replaced)
            self.sums.add(grain, vector)
        forward.refuse_unknown_changes(replaced)

    def _layout_for(self, loss: GrainLoss, gradients: Any) -> Layout:
        """That of the step, which the job's first grain shows."""
        if self.layout is None or self._forward.is_first:
            given = flatten(gradients)
            assigned = self._forward.find_assigned(given, loss.mean, gradients)
            if self.layout is None:
                self._leaves.learn(assigned, given, loss.metrics)
                self._seat.replays(self._standing.replays)
        layout = self.layout
        assert layout is not None
        self._forward.accept(layout)
        return layout

    def _check_given(self, given: Mapping[str, mx.array]) -> None:
        self._given = frozenset(given) if self._given is None else self._given
        if others := sorted(self._given ^ given.keys()):
            raise UsageError(
                f"accumulate(): other gradients than before: {', '.join(others)}; all grains of a "
                "step must have the same"
            )

    def _tell_of(self, grain: int, vector: Vector, replaced: Mapping[str, mx.array]) -> None:
        assert self.world is not None
        mx.eval(vector, replaced)
        self._seat.rechecked(self.world, self._standing.step, grain, list(vector))

    def _show(self, grain: int, vector: Vector, replaced: Mapping[str, mx.array]) -> None:
        assert self.world is not None
        mx.eval(vector, replaced)
        self.proving.show_grain(self.world, self._standing.step, grain, vector)

    def _take_probe(self, layout: Layout, vector: Vector, given: Mapping[str, mx.array]) -> None:
        standing = self._standing
        assert standing.point is not None
        first = standing.step == 1
        left = self._forward.state_of(layout) if first else {}
        if not self.probe.take(vector, left):
            return
        self._forward.restore()
        returned = layout.returned(given)
        stamp, seed = standing.point.stamp, standing.seed
        self.probe.conclude(layout, standing.state, stamp, returned, seed, first=first)
        if 0 in self.sums.missing():
            self.sums.add(0, vector)

    # What becomes of them.

    def name_means(self, reduced: Reduced) -> None:
        """Say on main's stderr what of the first step may better be no mean of its grains."""
        if self._standing.step == 1 and self.world is not None and self.world.rank == 0:
            means = self.probe.named_means(reduced.state)
            # What a module's first pass makes is part of the state.
            draws = [] if self._standing.state.lazy.paths else self.probe.named_draws()
            name_own([*self._forward.set_up, *means, *draws], aloud=True)

    def put_back(self) -> None:
        """Forward passes have left their marks on the state, which are not its own."""
        self._forward.restore()
        self._forward.forget()
        self._given = None

    def spend(self) -> None:
        """The sums went into the update that begins."""
        self.sums.clear()
        self.probe.left = {}
        self.put_back()

    def renounce(self) -> None:
        """Memory ran out: drop what was computed of the step."""
        self.sums.clear()
        self.probe.restart()
        self._forward.drop_trial()
        self._forward.restore()

    def restart(self) -> None:
        """Another state is in place."""
        self.sums.clear()
        self.probe.restart()
