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
from elasticd.errors import UsageError
from tests.unit.train import models
from tests.unit.train.cohort import Cohort, spec
from tests.unit.train.steps.test_bodies import Script, check_survivors, played, undisturbed

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

    def gradient(self, loss: Any, part: Any, batch: Any) -> Any:
        return nn.value_and_grad(part, loss)(part, batch)

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
                    value, grads[part] = self.gradient(loss, self.model[part], batch)
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

    def gradient(self, loss: Any, part: Any, batch: Any) -> Any:
        def of(parameters: Any) -> Any:
            part.update(parameters)
            return loss(part, batch)

        return mx.value_and_grad(of)(part.parameters())

    def parts(self, step: elasticd.Step) -> tuple[str, ...]:
        return ("second", "first") if step.number % 3 == 1 else ("second",)


class Modes(Script):
    """Dropout and a running mean, which its body switches off and on."""

    high = True

    def __init__(self) -> None:
        super().__init__()
        self.model: Any = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm(8), nn.Dropout(0.3), nn.Linear(8, 3)
        )

    def bottom(self, step: elasticd.Step) -> None:
        layer: Any = self.model.layers[1 + step.number % 2]
        layer.train(not layer.training)


class ModesLate(Modes):
    """The statistics are left alone at first."""

    def __init__(self) -> None:
        super().__init__()
        self.model.layers[1].eval()


class ThawsStatistics(Modes):
    """For some steps they have a gradient, as ``unfreeze()`` from above reaches them."""

    def __init__(self) -> None:
        super().__init__()
        self.model.layers[1].eval()
        self.model.freeze()
        self.model.layers[3].unfreeze()

    def bottom(self, step: elasticd.Step) -> None:
        if step.number == 2:
            self.model.unfreeze()
        if step.number == 5:
            self.model.layers[1].unfreeze()  # nn.BatchNorm freezes them then
            self.model.layers[1].train()


class Replaces(Script):
    """Another head of the same shape, which is trained in part."""

    high = True

    def bottom(self, step: elasticd.Step) -> None:
        if step.number % 3 == 1:
            head = nn.Linear(8, 3)
            head.freeze(keys=["bias"])
            self.model.layers[2] = head
        if step.number % 3 == 0:
            self.model.unfreeze()


class Measures(Script):
    """Its loss shows other figures than its gradients are of."""

    high = True

    def loss(self, model: Any, batch: Any) -> Any:
        found = models.loss(model, batch)
        return elasticd.Weighted(found, batch["y"].sum() + 1, {"shown": found * 2})


class Notes(Thaws):
    """Its model has dicts and lists without arrays, which grow, and another one later."""

    def __init__(self) -> None:
        super().__init__()
        self.model.seen, self.model.marks, self.model.past = {}, {}, [[]]

    def bottom(self, step: elasticd.Step) -> None:
        self.thaw(step)
        self.model.seen[f"step {step.number}"] = {"loss": step.loss}
        self.model.marks[step.number] = "seen"
        self.model.past.append([step.number])
        if step.number == 3:
            self.model.late = {"since": step.number}

    def ends(self) -> str:
        model = self.model
        return f"{super().ends()} {model.seen} {model.marks} {model.past} {model.late}"


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
    OfTheFrozenToo,
    Modes,
    ModesLate,
    ThawsStatistics,
    Replaces,
    Notes,
    Measures,
]
SEEDS = [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 10))]


def through_deaths(kind: type[Script], seed: int) -> None:
    alone = undisturbed(kind, steps=STEPS)
    dice = random.Random(seed)
    cohort = Cohort(spec(train__steps=STEPS), played(kind), dice)
    cohort.kills = {name: dice.randrange(8, 120) for name in "abc"}
    cohort.kills |= {f"{name}'": dice.randrange(20, 80) for name in "abc"}
    cohort.respawns = 4
    cohort.delivers, cohort.keeps_updates = bool(seed % 2), bool(seed % 3)
    results = cohort.run(list("abc"))
    died = check_survivors(cohort, results, alone)
    assert died, "nobody died"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_joiners_sum_what_the_others_sum(kind: type[Script], seed: int) -> None:
    through_deaths(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 60))
def test_whatever_forward_passes_assign(seed: int) -> None:
    through_deaths(drawn(seed), seed)


def adds_a_layer(model: Any) -> None:
    model.layers[0].lora = mx.zeros((2, 2))


def takes_a_layer(model: Any) -> None:
    del model.layers[2]["bias"]


def makes_it_smaller(model: Any) -> None:
    model.layers[2].bias = mx.zeros((1,))


def makes_it_half(model: Any) -> None:
    model.layers[2].bias = model.layers[2].bias.astype(mx.float16)


@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (adds_a_layer, r"layers\.0\.lora is float32\[2,2\], at Run.* it was absent.*before Run"),
        (takes_a_layer, r"layers\.2\.bias is absent, at Run.* it was float32\[3\]"),
        (makes_it_smaller, r"layers\.2\.bias is float32\[1\], at"),
        (makes_it_half, r"layers\.2\.bias is float16\[3\], at"),
    ],
)
def test_a_body_that_changes_the_structure_is_refused_on_all_ranks(
    change: Any, says: str, above: bool
) -> None:
    """A newcomer's module can't be built from a state."""

    class Changes(Script):
        high = not above

        def top(self, step: elasticd.Step) -> None:
            if above and step.number == 3:
                change(self.model)

        def bottom(self, step: elasticd.Step) -> None:
            if not above and step.number == 3:
                change(self.model)

    cohort = Cohort(spec(train__steps=STEPS), played(Changes), random.Random(0))
    results = cohort.run(list("abc"))
    errors = [result.error for result in results.values()]
    told = [error for error in errors if isinstance(error, UsageError)]
    assert told and all(isinstance(error, (UsageError, AssertionError)) for error in errors)
    assert cohort.committed == 3 - above
    with pytest.raises(UsageError, match=says):
        raise told[0]


def test_gradients_that_only_some_grains_have_are_named() -> None:
    class Uneven(Alternates):
        def parts(self, step: elasticd.Step) -> tuple[str, ...]:
            return ("first", "second") if self.rank else ("first",)

        def run(self, seat: Any) -> dict[str, Any]:
            self.rank = "abc".index(seat.name)
            return super().run(seat)

    results = Cohort(spec(), played(Uneven), random.Random(1)).run(list("ab"))
    told = [str(r.error) for r in results.values() if isinstance(r.error, UsageError)]
    assert told and "absent in the others; give zeros where it has none" in told[0]


class Converges(nn.Module):
    """Its first pass in a process that joins late finds nothing to change."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.seen, self.kept = mx.zeros((2,)), mx.full((3,), 0.1)
        self.freeze(keys=["seen", "kept"], recurse=False)

    def __call__(self, x: mx.array) -> mx.array:
        self.seen = mx.ones_like(self.seen)
        self.kept = self.kept * 1.0
        result: mx.array = self.linear(x) + self.seen.mean()
        return result


def test_state_that_no_grain_changes_keeps_its_bits() -> None:
    """Its mean, a sum that is divided, might have others."""

    class Keeps(Script):
        high = True

        def __init__(self) -> None:
            super().__init__()
            self.model: Any = Converges()

        def ends(self) -> str:
            return str(self.model.kept.tolist())

    assert undisturbed(Keeps, "abc")["ends"] == str(mx.full((3,), 0.1).tolist())


def test_a_thawed_layer_is_among_those_that_a_state_calls_trained() -> None:
    states: list[Any] = []

    def script(seat: Any) -> None:
        found = Thaws()
        found.run(seat)
        states.append(seat.snapshot)

    Cohort(spec(train__steps=3), script, random.Random(0)).run(["a"])
    (state,) = states
    assert {path.split(".")[1] for path in state.trainable} == {"2", "3"}
    assert state.plain["summed"] == {"assigned": [], "beside": [], "metrics": []}
