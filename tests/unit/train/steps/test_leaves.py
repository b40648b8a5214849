"""What ranks sum, and what their state has, is the same on all of them: whatever a forward pass
assigns in which step, whatever the body trains, and whoever joins when."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest

import elasticd
from tests.unit.train import models
from tests.unit.train.cohort import Cohort, spec
from tests.unit.train.steps.test_bodies import Script, played, undisturbed

STEPS = 9


def settles(layer: Any, step: Any) -> None:
    """It has converged after some steps: the pass assigns what was there."""
    layer.table = mx.minimum(layer.table + 1.0, layer.when)


def settles_in_place(layer: Any, step: Any) -> None:
    layer.table[0] = mx.minimum(layer.table[0] + 1.0, layer.when)


def settles_whole(layer: Any, step: Any) -> None:
    layer.count = mx.minimum(layer.count + 1, layer.when)


def begins_late(layer: Any, step: Any) -> None:
    layer.table = mx.where(step > layer.when, layer.table * 0.9 + 0.3, layer.table)


def now_and_then(layer: Any, step: Any) -> None:
    layer.count = layer.count + (step % layer.when == 0).astype(mx.int32)


def while_training(layer: Any, step: Any) -> None:
    if layer.training:
        layer.table = layer.table * 0.9 + 0.1 * step


def follows_the_data(layer: Any, step: Any) -> None:
    layer.table = 0.5 * layer.table + 0.5 * mx.sign(layer.table)


HABITS = (
    settles,
    settles_in_place,
    settles_whole,
    begins_late,
    now_and_then,
    while_training,
    follows_the_data,
)


class Layer(nn.Module):
    """Linear, with buffers that its passes assign by some habit."""

    def __init__(self, inputs: int, outputs: int, dice: random.Random) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.table, self.count = mx.full((3,), dice.uniform(-1, 1)), mx.array(0)
        self.freeze(keys=["table", "count"], recurse=False)
        self.when, self.habits = dice.randrange(2, 5), (dice.choice(HABITS), dice.choice(HABITS))

    def __call__(self, x: mx.array, step: Any) -> mx.array:
        for habit in self.habits:
            habit(self, step)
        shift: mx.array = self.table.mean() + 0.1 * self.count
        result: mx.array = self.linear(x) + mx.tanh(shift)
        return result


class Net(nn.Module):
    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self.layers = [Layer(4, 6, dice), Layer(6, 5, dice), Layer(5, 3, dice)]

    def __call__(self, x: mx.array, step: Any) -> mx.array:
        for layer in self.layers:
            x = layer(x, step)
        return x


def drawn(seed: int) -> type[Script]:
    """A script whose passes have habits that the seed chooses; its body stops to train a layer."""

    class Habits(Script):
        high = True

        def __init__(self) -> None:
            super().__init__()
            dice = random.Random(seed)
            self.model: Any = Net(dice)
            self.quiet = dice.randrange(2, STEPS)

        def loss(self, model: Any, batch: Any, step: Any = None) -> mx.array:
            return nn.losses.cross_entropy(model(batch["x"], step), batch["y"]).mean()

        def bottom(self, step: elasticd.Step) -> None:
            if step.number == self.quiet:
                layer: Any = self.model.layers[0]
                layer.eval()
            if step.number == self.quiet + 2:
                self.model.train()

    Habits.__name__ = f"Habits{seed}"
    return Habits


class Thaws(Script):
    """One layer after the other, from the head down; the optimizer learns of it by an update."""

    high = True

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)), nn.Linear(4, 3))
        self.model.freeze()
        self.model.layers[3].unfreeze()

    def thaw(self, step: elasticd.Step) -> None:
        if step.number % 2 == 0 and step.number <= 6:
            self.model.layers[3 - step.number // 2].unfreeze()

    def bottom(self, step: elasticd.Step) -> None:
        self.thaw(step)


class ThawsAbove(Thaws):
    high = False

    def top(self, step: elasticd.Step) -> None:
        self.thaw(step)

    def bottom(self, step: elasticd.Step) -> None:
        """It is done."""


class ThawsItself(Thaws):
    """And makes the optimizer's state itself."""

    def bottom(self, step: elasticd.Step) -> None:
        self.thaw(step)
        self.optimizer.init(self.model.trainable_parameters())


class Freezes(Thaws):
    """One thing after the other again: what was trained for a while keeps its moments."""

    def thaw(self, step: elasticd.Step) -> None:
        self.model.freeze()
        self.model.layers[step.number % 3].unfreeze(keys=["weight", "bias"][: 1 + step.number % 2])
        self.model.layers[3].unfreeze()


class FreezesJoined(Freezes):
    def __init__(self) -> None:
        super().__init__()
        parts = [optim.Adam(1e-2, eps=1e-3), optim.SGD(1e-2, momentum=0.9)]
        self.optimizer = optim.MultiOptimizer(parts, [lambda path, _: "bias" in path])


class FreezesAbove(Freezes):
    high = False

    def top(self, step: elasticd.Step) -> None:
        self.thaw(step)

    def bottom(self, step: elasticd.Step) -> None:
        """It is done."""


class Alternates(Script):
    """What the gradients are of depends on the step."""

    def parts(self, step: elasticd.Step) -> tuple[str, ...]:
        return ("first",) if step.number % 2 else ("second",)

    def __init__(self) -> None:
        super().__init__()
        model: Any = nn.Module()
        model.first = nn.Sequential(nn.Linear(4, 5), nn.ReLU())
        model.second = nn.Linear(5, 3)
        self.model = model

    def run(self, seat: Any) -> dict[str, Any]:
        run = elasticd.Run(model=self.model, optimizer=self.optimizer, data=models.samples())

        def loss(part: Any, batch: Any) -> mx.array:
            logits = self.model.second(self.model.first(batch["x"]))
            return nn.losses.cross_entropy(logits, batch["y"]).mean()

        losses = {}
        for step in run.steps():
            parts = self.parts(step)
            for batch in step.micro_batches():
                grads = {}
                for part in parts:
                    value, grads[part] = nn.value_and_grad(self.model[part], loss)(
                        self.model[part], batch
                    )
                step.accumulate(value, grads)
            step.apply()
            if not step.late:
                losses[step.number] = step.loss
        return {"ends": self.ends(), "losses": losses, "checkpoints": seat.checkpoints}


class AlternatesJoined(Alternates):
    def __init__(self) -> None:
        super().__init__()
        parts = [optim.Adam(1e-2, eps=1e-3), optim.Adam(2e-3, eps=1e-3)]
        self.optimizer = optim.MultiOptimizer(parts, [lambda path, _: "first" in path])


class NowAndThenAll(Alternates):
    def parts(self, step: elasticd.Step) -> tuple[str, ...]:
        return ("second", "first") if step.number % 3 == 0 else ("second",)


class OfTheFrozenToo(NowAndThenAll):
    """Its first gradients are of what isn't trained, too."""

    def __init__(self) -> None:
        super().__init__()
        self.model.first.freeze()
        self.optimizer.init(self.model.parameters())

    def parts(self, step: elasticd.Step) -> tuple[str, ...]:
        return ("second", "first") if step.number % 3 == 1 else ("second",)


KINDS: list[type[Script]] = [
    *map(drawn, range(4)),
    Thaws,
    ThawsAbove,
    ThawsItself,
    Freezes,
    FreezesJoined,
    FreezesAbove,
    Alternates,
    AlternatesJoined,
    NowAndThenAll,
]
SEEDS = [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 10))]


def through_deaths(kind: type[Script], seed: int) -> None:
    alone = undisturbed(kind, steps=STEPS)
    dice = random.Random(seed)
    cohort = Cohort(spec(train__steps=STEPS), played(kind), dice)
    cohort.kills = {name: dice.randrange(8, 120) for name in "abc"}
    cohort.kills |= {f"{name}'": dice.randrange(20, 80) for name in "abc"}
    cohort.respawns = 4
    cohort.delivers, cohort.keeps_updates = bool(seed % 2), bool(seed % 3)
    results = cohort.run(list("abc"))
    died = {name for name, result in results.items() if result.error is not None}
    assert died, "nobody died"
    for name in results.keys() - died:
        value = results[name].value
        assert value["ends"] == alone["ends"], cohort.worlds
        assert value["losses"].items() <= alone["losses"].items(), cohort.worlds
        assert set(value["checkpoints"]) <= set(alone["checkpoints"]), cohort.worlds


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_joiners_sum_what_the_others_sum(kind: type[Script], seed: int) -> None:
    through_deaths(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 60))
def test_whatever_forward_passes_assign(seed: int) -> None:
    through_deaths(drawn(seed), seed)
