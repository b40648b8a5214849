"""Updates that are made on the CPU, where those of GPUs differ between nodes."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest

import elasticd
from elasticd.train.states.state import TrainingState
from elasticd.train.steps import streams
from elasticd.train.steps.streams import Streams
from elasticd.train.steps.trial import cpu_trial, trial_update
from tests.unit.train import models
from tests.unit.train.cohort import Cohort, Killed, spec

STEPS = 4


class TwoStreams(Streams):
    """As on a Mac. Each rank of a cohort is a thread."""

    def __init__(self) -> None:
        self._here = threading.local()

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


def test_a_probe_tells_of_both(two: TwoStreams) -> None:
    _, found = trained(two, "abc", on_cpu=True)
    probes = [value["probe"] for value in found.values()]
    assert len({probe.gradient for probe in probes}) == 1
    assert len({probe.update for probe in probes}) == 3
    assert len({probe.cpu_update for probe in probes}) == 1
    assert "" not in {probe.cpu_update for probe in probes}


def test_updates_of_others_are_made_where_they_were_made(two: TwoStreams) -> None:
    """By who has missed the end of a step, and by who joins with updates to an older state."""
    _, alone = trained(two, "a", on_cpu=True)
    replays = 0
    for step, seed in ((2, 0), (3, 1), (4, 2)):
        cohort, found = trained(two, "abcd", on_cpu=True, seed=seed, dies_behind={"a": step})
        assert {value["digest"] for value in found.values()} == {alone["a"]["digest"]}
        replays += cohort.replays
    for call in (32, 36, 40):
        how = {"kills": {"a": call}, "respawn": True, "delivers": True}
        cohort, found = trained(two, "ab", on_cpu=True, seed=call, **how)
        assert {value["digest"] for value in found.values()} == {alone["a"]["digest"]}
        replays += cohort.replays
    assert replays > 0


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


def test_where_there_is_one_stream_both_are_the_same() -> None:
    """Without a second trial."""
    model = nn.Linear(3, 4)
    state = TrainingState(model, optim.SGD(0.1))
    assert cpu_trial(state, {}, 0, "usual") == "usual"
    with Streams().cpu():
        assert mx.default_device() == mx.Device(mx.cpu, 0)
