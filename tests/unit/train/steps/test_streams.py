"""Updates that are made on the CPU, where those of GPUs differ between nodes."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest

import elasticd
from elasticd.checkpoints.codec import write_memory
from elasticd.errors import UsageError
from elasticd.train.states.state import Own, TrainingState
from elasticd.train.states.updates import Reduced, Update, packed
from elasticd.train.steps import streams
from elasticd.train.steps.entrance import Entrance
from elasticd.train.steps.grains import Grains
from elasticd.train.steps.seat import Files
from elasticd.train.steps.standing import Standing
from elasticd.train.steps.streams import Streams
from elasticd.train.steps.trial import cpu_trial, trial_update
from elasticd.train.world import TrainerWorld
from elasticd.types import Point
from tests.unit.train import models
from tests.unit.train.cohort import Cohort, Killed, spec
from tests.unit.train.protocol.worlds import START, world
from tests.unit.train.steps.test_entrance import TAG, Seat

STEPS = 4


class TwoStreams(Streams):
    """As on a Mac. Each rank of a cohort is a thread."""

    def __init__(self) -> None:
        self._here = threading.local()
        self.times = 0
        """How often something was made on the CPU."""

    @property
    def apart(self) -> bool:
        return True

    @property
    def is_cpu(self) -> bool:
        """Whether what is made now is made on the CPU."""
        return getattr(self._here, "cpu", False)

    @contextmanager
    def cpu(self) -> Iterator[None]:
        self._here.cpu = True
        self.times += 1
        try:
            yield
        finally:
            self._here.cpu = False


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> TwoStreams:
    found = TwoStreams()
    monkeypatch.setattr(streams, "HERE", found)
    return found


class OfChip(optim.AdamW):
    """On its GPU a chip rounds in its own way."""

    def __init__(self, two: TwoStreams, chip: str) -> None:
        super().__init__(1e-2, eps=1e-3)
        self._two, self._off = two, 1e-3 * (ord(chip[0]) - ord("a") + 1)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: Any) -> mx.array:
        found: mx.array = super().apply_single(gradient, parameter, state)
        return found if self._two.is_cpu else found + mx.array(self._off, found.dtype)


def script_of(two: TwoStreams) -> Any:
    def script(seat: Any) -> Any:
        mx.random.seed(1)
        run = elasticd.Run(
            model=models.Mixed(), optimizer=OfChip(two, seat.name), loss=models.loss,
            data=models.samples(), clip_norm=0.5,
        )  # fmt: skip
        for _ in run:
            pass
        return {"digest": run.digest(), "probe": seat.probe}

    return script


def trained(two: TwoStreams, names: str, *, on_cpu: bool, seed: int = 0, **how: Any) -> Any:
    cohort = Cohort(spec(), script_of(two), random.Random(seed))
    cohort.on_cpu = on_cpu
    for name, value in how.items():
        setattr(cohort, name, value)
    results = cohort.run(list(names))
    for result in results.values():
        if result.error is not None and not isinstance(result.error, Killed):
            raise result.error
    return cohort, {n: r.value for n, r in results.items() if r.error is None}


def test_a_world_may_have_them_made_on_the_cpu(two: TwoStreams) -> None:
    _, alone = trained(two, "a", on_cpu=True)
    _, elsewhere = trained(two, "abc", on_cpu=True)
    assert {value["digest"] for value in elsewhere.values()} == {alone["a"]["digest"]}
    _, apart = trained(two, "ab", on_cpu=False)
    assert len({value["digest"] for value in apart.values()}) == 2, "their GPUs differ"


@pytest.mark.parametrize("on_cpu", [False, True])
def test_nothing_else_is_made_there(two: TwoStreams, on_cpu: bool) -> None:
    """The probe's second update; and of each step the mean of the gradients, and the update."""
    trained(two, "a", on_cpu=on_cpu)
    assert two.times == 1 + 2 * STEPS * on_cpu


def test_a_probe_tells_of_both(two: TwoStreams) -> None:
    _, found = trained(two, "abc", on_cpu=True)
    probes = [value["probe"] for value in found.values()]
    assert len({probe.gradient for probe in probes}) == 1
    assert len({probe.update for probe in probes}) == 3
    assert len({probe.cpu_update for probe in probes}) == 1
    assert "" not in {probe.cpu_update for probe in probes}


def test_who_missed_the_end_of_a_step_makes_its_update_there_too(two: TwoStreams) -> None:
    _, alone = trained(two, "a", on_cpu=True)
    replays = 0
    for seed in range(20):
        behind = {"a": 2 + seed % 3}
        cohort, found = trained(two, "abcd", on_cpu=True, seed=seed, dies_behind=behind)
        assert {value["digest"] for value in found.values()} == {alone["a"]["digest"]}
        replays += cohort.replays
        if seed >= 2 and replays:  # who is late when it dies is up to the threads
            break
    assert replays > 0


@pytest.mark.parametrize("on_cpu", [False, True])
def test_an_update_to_an_older_state_is_made_where_it_was_made_first(
    two: TwoStreams, on_cpu: bool
) -> None:
    """By who joins: it comes with the update, since no world says it then."""
    seat: Any = Seat(set_up=True)
    state = seat.state = TrainingState(nn.Linear(2, 2), OfChip(two, "a"))
    standing = Standing(seat, state)
    entrance = Entrance(standing, Grains(standing, lambda _: None))
    entrance.settle(TrainerWorld.as_given(world(1, START, "load")))
    left = state.capture(START, 0, 0)
    reduced = Reduced(0.5, 1.0, {}, {}, state.parameters())
    made = Update.of(START, TAG, False, reduced, reduced.gradients)
    assert made is not None
    told = replace(made, on_cpu=on_cpu).with_body(Own({}, None), left.own, left)
    seat.files = lambda _: Files((write_memory(*packed([told])),))
    point = Point(START.lineage, made.step, made.stamp)
    entrance.settle(TrainerWorld.as_given(world(2, point, "load")))
    assert two.times == on_cpu and standing.point == point


class OfTheGpu(optim.SGD):
    """Has a kernel of its own, which there is for the GPU alone."""

    def __init__(self, two: TwoStreams) -> None:
        super().__init__(0.1)
        self._two, self.made = two, 0

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: Any) -> mx.array:
        self.made += 1
        if self._two.is_cpu:
            raise ValueError("[metal_kernel] only supports the GPU")
        found: mx.array = super().apply_single(gradient, parameter, state)
        return found


def test_an_optimizer_that_can_t_is_said_to_and_nothing_is_left_behind(two: TwoStreams) -> None:
    model = nn.Linear(3, 4)
    before, optimizer = model.weight, OfTheGpu(two)
    state = TrainingState(model, optimizer)
    gradients = {"weight": model.weight * 0.5, "bias": model.bias - 1}
    usual = trial_update(state, gradients, 0)
    assert usual and cpu_trial(state, gradients, 0, usual) == ""
    assert model.weight is before and optimizer.made == 0 and not two.is_cpu
    assert trial_update(state, gradients, 0) == usual


class Drifts(optim.SGD):
    """Whose updates come to something else each time: everywhere, or on the GPU alone."""

    def __init__(self, two: TwoStreams, everywhere: bool) -> None:
        super().__init__(0.1)
        self._two, self._everywhere, self._times = two, everywhere, itertools.count(1)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: Any) -> mx.array:
        if self._everywhere or not self._two.is_cpu:
            gradient = gradient * next(self._times)
        found: mx.array = super().apply_single(gradient, parameter, state)
        return found


def test_an_update_that_only_a_gpu_makes_otherwise_is_not_refused(two: TwoStreams) -> None:
    """It is no fault of the optimizer's."""
    model = nn.Linear(3, 4)
    gradients = {"weight": model.weight * 0.5, "bias": model.bias - 1}
    assert trial_update(TrainingState(model, Drifts(two, False)), gradients, 0, twice=True)
    with pytest.raises(UsageError, match="made twice came to other values"):
        trial_update(TrainingState(model, Drifts(two, True)), gradients, 0, twice=True)
    assert trial_update(TrainingState(model, Drifts(two, True)), gradients, 0), "not asked"


def test_where_there_is_one_stream_both_are_the_same() -> None:
    """Without a second trial."""
    model = nn.Linear(3, 4)
    state = TrainingState(model, optim.SGD(0.1))
    assert cpu_trial(state, {}, 0, "usual") == "usual"
    with Streams().cpu():
        assert mx.default_device() == mx.Device(mx.cpu, 0)
