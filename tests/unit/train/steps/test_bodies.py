"""The state of a step is what the loop's body of that step has left, whoever dies in the middle."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest
from mlx.utils import tree_flatten, tree_map

import elasticd
from tests.unit.train import models
from tests.unit.train.cohort import Cohort, Killed, Result, spec

STEPS = 6


class Script:
    """What happens above the loop, at a body's top, and behind its update."""

    high = False
    clip_norm: float | None = None

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        self.optimizer: Any = optim.AdamW(learning_rate=1e-2, eps=1e-3)
        self.ema: dict[str, Any] = {}

    def loss(self, model: Any, batch: Any) -> mx.array:
        return models.loss(model, batch)

    def data(self) -> Any:
        return models.samples()

    def above(self, run: elasticd.Run) -> None:
        """Between ``Run(…)`` and the loop."""

    def top(self, step: elasticd.Step) -> None:
        """In the body, before its batches."""

    def middle(self, step: elasticd.Step) -> None:
        """In the body, before its update."""

    def bottom(self, step: elasticd.Step) -> None:
        """In the body, behind its update."""

    def ends(self) -> str:
        """All that must be the same."""
        kept = [self.model.parameters(), self.optimizer.state, self.ema]
        flat: list[tuple[str, Any]] = list(tree_flatten(kept))  # type: ignore[arg-type]
        return str([(path, array.tolist()) for path, array in flat])

    def run(self, seat: Any) -> dict[str, Any]:
        run = elasticd.Run(
            model=self.model,
            optimizer=self.optimizer,
            loss=self.loss,
            data=self.data(),
            clip_norm=self.clip_norm,
        )
        self.above(run)
        losses = {}
        if self.high:
            for step in run:
                losses[step.number] = step.loss
                self.bottom(step)
        else:
            loss_and_grad: Any = nn.value_and_grad(self.model, models.loss)
            for step in run.steps():
                number = step.number
                self.top(step)
                for batch in step.micro_batches():
                    step.accumulate(*loss_and_grad(self.model, batch))
                    assert step.number == number
                self.middle(step)
                step.apply()
                assert step.number == number
                if not step.late:
                    losses[number] = step.loss
                self.bottom(step)
        return {"ends": self.ends(), "losses": losses, "checkpoints": seat.checkpoints}


class DecaysBelow(Script):
    high = True

    def bottom(self, step: elasticd.Step) -> None:
        if step.number == 3:
            self.optimizer.learning_rate = 1e-3


class DecaysAbove(Script):
    def top(self, step: elasticd.Step) -> None:
        self.optimizer.learning_rate = 1e-2 / step.number


class SetsUp(DecaysBelow):
    """What a joiner runs again, over a state that others have gone on from."""

    def above(self, run: elasticd.Run) -> None:
        self.optimizer.learning_rate = 0.02
        first: Any = self.model.layers[0]
        first.weight = first.weight * 2


class WritesInPlace(Script):
    def bottom(self, step: elasticd.Step) -> None:
        weight = self.model.layers[0].weight
        weight *= 0.9
        bias = self.model.layers[2].bias
        bias[0] = 0.25 * step.number


class WritesInPlaceAbove(Script):
    def top(self, step: elasticd.Step) -> None:
        weight = self.model.layers[0].weight
        weight *= 0.9


class WritesGradientsInPlace(Script):
    def middle(self, step: elasticd.Step) -> None:
        grads: Any = step.grads
        first = grads["layers"][0]["weight"]
        first *= 0.5


class Clips(Script):
    high = True
    clip_norm = 0.1


class ClipsItself(Script):
    def middle(self, step: elasticd.Step) -> None:
        step.grads, norm = optim.clip_grad_norm(step.grads, 0.1)
        self.optimizer.learning_rate = 1e-2 / (1.0 + norm)


class Plateaus(Script):
    """Goes by the loss, which who missed the step's end must know too."""

    def bottom(self, step: elasticd.Step) -> None:
        if not step.late:
            self.optimizer.learning_rate = step.loss * 0.01


class Averages(Script):
    def above(self, run: elasticd.Run) -> None:
        self.ema.update(tree_map(mx.array, self.model.parameters()))
        run.track("ema", self.ema)

    def bottom(self, step: elasticd.Step) -> None:
        new = tree_map(lambda e, p: 0.9 * e + 0.1 * p, self.ema, self.model.parameters())
        self.ema.update(new)
        if step.number == 4:
            self.model.update(new)


class Keeps(Script):
    """State of its own in ``run.state``, which the loss reads; and an EMA."""

    def above(self, run: elasticd.Run) -> None:
        self.ours = run.state
        run.state.beta, run.state.history = 1.0, []
        run.state.noise = {"seen": mx.zeros((2,))}
        run.state.dice, run.state.rng = random.Random(3), np.random.default_rng(4)
        self.average = elasticd.EMA(self.model, 0.9)
        run.track("average", self.average)

    def top(self, step: elasticd.Step) -> None:
        kept = self.ours
        kept.beta = kept.beta * 0.9 + kept.dice.random() * 0.1
        self.optimizer.learning_rate = 1e-2 * kept.beta

    def bottom(self, step: elasticd.Step) -> None:
        kept = self.ours
        kept.history.append(kept.rng.random())
        kept.noise["seen"] = kept.noise["seen"] + self.model.layers[0].weight.sum()
        self.average.update()
        if step.number == 5:
            with self.average.applied():
                kept.best = float(self.model.layers[0].weight.sum())

    def ends(self) -> str:
        return super().ends() + str([self.ours.state_dict(), self.average.state_dict()])


class Skips(Script):
    """And asks which epoch it is, which in a stream means to read on."""

    def data(self) -> Any:
        return models.noisy_stream

    def run(self, seat: Any) -> dict[str, Any]:
        run = elasticd.Run(model=self.model, optimizer=self.optimizer, data=self.data())
        loss_and_grad: Any = nn.value_and_grad(self.model, models.loss)
        epochs = {}
        for step in run.steps():
            for batch in step.micro_batches():
                step.accumulate(*loss_and_grad(self.model, batch))
            if not step.late:
                epochs[step.number] = (step.epoch, mx.random.normal().item())
            step.skip() if step.number % 2 else step.apply()
        return {"ends": self.ends(), "losses": epochs, "checkpoints": seat.checkpoints}


class UpdatesItself(Script):
    """With two optimizers, which the run does not know, and one that gets float32 gradients of a
    bfloat16 model: what it holds is of another kind then than what it began with."""

    def __init__(self) -> None:
        super().__init__()
        self.model.set_dtype(mx.bfloat16)
        self.others = [optim.Adam(1e-2), optim.Lion(1e-3)]

    def run(self, seat: Any) -> dict[str, Any]:
        run = elasticd.Run(model=self.model, optimizer=self.optimizer, data=self.data())
        run.state.master = wide(self.model.trainable_parameters())
        for number, other in enumerate(self.others):
            other.init(self.model.layers[2].parameters())
            run.track(f"other {number}", other)
        loss_and_grad: Any = nn.value_and_grad(self.model, models.loss)
        losses = {}
        for step in run.steps():
            for batch in step.micro_batches():
                step.accumulate(*loss_and_grad(self.model, batch))
            master = self.optimizer.apply_gradients(wide(step.grads), run.state.master)
            run.state.master = master
            self.model.update(tree_map(lambda p: p.astype(mx.bfloat16), master))
            gradients = step.grads["layers"][2]
            self.others[step.number % 2].update(self.model.layers[2], gradients)
            step.skip()
            if not step.late:
                losses[step.number] = step.loss
        kept = str([dict(tree_flatten(other.state)) for other in self.others])
        return {"ends": self.ends() + kept, "losses": losses, "checkpoints": seat.checkpoints}


class Warms(Script):
    """By the step, which the loss is told."""

    high = True

    def loss(self, model: Any, batch: Any, step: mx.array | None = None) -> mx.array:
        assert step is not None
        return models.loss(model, batch) * mx.minimum(step / 4, 1.0)


class Draws(Script):
    def _shake(self) -> None:
        layer: Any = self.model.layers[0]
        layer.weight = layer.weight + mx.random.normal(layer.weight.shape) * random.random() * 0.01

    def top(self, step: elasticd.Step) -> None:
        self._shake()

    def middle(self, step: elasticd.Step) -> None:
        step.grads = tree_map(lambda g: g + mx.random.normal(g.shape) * 0.01, step.grads)

    def bottom(self, step: elasticd.Step) -> None:
        self._shake()


class Heats(Script):
    """Keeps what counts in Python: in the model, and in an optimizer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.optimizer = models.Counting()
        self.optimizer.weights = np.ones(2, np.float32)
        self.model.heat, self.model.past = 1.0, []

    def top(self, step: elasticd.Step) -> None:
        self.model.heat *= 0.9
        layer: Any = self.model.layers[0]
        layer.bias = layer.bias * self.model.heat

    def middle(self, step: elasticd.Step) -> None:
        self.optimizer.t += step.number
        self.optimizer.weights = self.optimizer.weights * np.float32(0.5)
        scale = float(self.optimizer.weights[0]) + sum(self.model.past)
        layer: Any = self.model.layers[2]
        layer.bias = layer.bias * scale

    def bottom(self, step: elasticd.Step) -> None:
        self.model.past.append(self.model.heat)

    def ends(self) -> str:
        kept = [self.model.heat, self.model.past, self.optimizer.t, self.optimizer.weights.tolist()]
        return f"{super().ends()} {kept}"


class HeatsLate(Heats):
    """The run knows of the optimizer from its first update on."""

    def middle(self, step: elasticd.Step) -> None:
        """Nothing of the optimizer's, which a joiner's run doesn't know here yet."""

    def bottom(self, step: elasticd.Step) -> None:
        super().middle(step)
        super().bottom(step)

    def run(self, seat: Any) -> dict[str, Any]:
        run = elasticd.Run(model=self.model, data=models.samples())
        loss_and_grad: Any = nn.value_and_grad(self.model, models.loss)
        for step in run.steps():
            self.top(step)
            for batch in step.micro_batches():
                step.accumulate(*loss_and_grad(self.model, batch))
            self.middle(step)
            step.apply(self.optimizer)
            self.bottom(step)
        return {"ends": self.ends(), "losses": {}, "checkpoints": seat.checkpoints}


class Stops(Script):
    high = True

    def above(self, run: elasticd.Run) -> None:
        self.ours = run

    def bottom(self, step: elasticd.Step) -> None:
        self.optimizer.learning_rate = 1e-2 / step.number
        if step.number == 4:
            self.ours.stop("enough")


class StopsAbove(Stops):
    """In the body of the step that is to be the last, before it is made."""

    high = False

    def top(self, step: elasticd.Step) -> None:
        if step.number == 4:
            self.ours.stop("enough")

    def bottom(self, step: elasticd.Step) -> None:
        """It is said."""


class Leaves(Stops):
    """And changes the model behind the loop, which is nobody's state. Who is given the last step's
    state by others comes to the loop's end, and has nothing left to leave."""

    def run(self, seat: Any) -> dict[str, Any]:
        run = elasticd.Run(
            model=self.model, optimizer=self.optimizer, loss=self.loss, data=self.data()
        )
        losses, at_end = {}, ""
        for step in run:
            losses[step.number] = step.loss
            self.optimizer.learning_rate = 1e-2 / step.number
            if step.number == 4:
                break
        else:
            at_end = self.ends()
        self.model.update(tree_map(lambda p: p * 2, self.model.parameters()))
        run._conclude()
        ends = at_end or self.ends()
        return {"ends": ends, "losses": losses, "checkpoints": seat.checkpoints}


class NamesItsOptimizerLate(DecaysBelow):
    high = False

    def run(self, seat: Any) -> dict[str, Any]:
        run = elasticd.Run(model=self.model, data=models.samples())
        loss_and_grad: Any = nn.value_and_grad(self.model, models.loss)
        for step in run.steps():
            for batch in step.micro_batches():
                step.accumulate(*loss_and_grad(self.model, batch))
            step.apply(self.optimizer)
            self.bottom(step)
        return {"ends": self.ends(), "losses": {}, "checkpoints": seat.checkpoints}


SCRIPTS: list[type[Script]] = [
    Script,
    DecaysBelow,
    DecaysAbove,
    SetsUp,
    WritesInPlace,
    WritesInPlaceAbove,
    WritesGradientsInPlace,
    Clips,
    ClipsItself,
    Plateaus,
    Averages,
    Keeps,
    Skips,
    UpdatesItself,
    Warms,
    Draws,
    NamesItsOptimizerLate,
    Stops,
    StopsAbove,
    Leaves,
    Heats,
    HeatsLate,
]


def played(kind: type[Script]) -> Callable[[Any], dict[str, Any]]:
    def script(seat: Any) -> dict[str, Any]:
        mx.random.seed(1)
        return kind().run(seat)

    return script


def undisturbed(kind: type[Script], names: str = "a", steps: int = STEPS) -> dict[str, Any]:
    results = Cohort(spec(train__steps=steps), played(kind), random.Random(0)).run(list(names))
    for result in results.values():
        if result.error is not None:
            raise result.error
    first, *others = (result.value for result in results.values())
    assert all(other == first for other in others)
    found: dict[str, Any] = first
    return found


def check_survivors(cohort: Cohort, results: dict[str, Result], alone: dict[str, Any]) -> set[str]:
    """Who was killed; all others must have come to what one comes to ``alone``."""
    died = {name for name, result in results.items() if isinstance(result.error, Killed)}
    assert results.keys() - died, "nobody is left"
    for name in results.keys() - died:
        if (error := results[name].error) is not None:
            raise error
        value = results[name].value
        assert value["ends"] == alone["ends"], cohort.worlds
        assert value["losses"].items() <= alone["losses"].items(), cohort.worlds
        assert set(value["checkpoints"]) <= set(alone["checkpoints"]), cohort.worlds
    return died


def wide(tree: Any) -> Any:
    return tree_map(lambda array: array.astype(mx.float32), tree)


@pytest.mark.parametrize("kind", [Skips, UpdatesItself])
def test_a_step_without_the_librarys_update_has_a_loss(kind: type[Script]) -> None:
    cohort = Cohort(spec(train__steps=STEPS), played(kind), random.Random(0))
    (result,) = cohort.run(["a"]).values()
    losses = {step: cohort.losses[step] for step in result.value["losses"]}
    assert all(isinstance(loss, float) for loss in losses.values()), losses


@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_world_changes_nothing(kind: type[Script]) -> None:
    assert undisturbed(kind, "abc") == undisturbed(kind)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 8))]
)
@pytest.mark.parametrize("kind", SCRIPTS)
def test_deaths_change_nothing(kind: type[Script], seed: int) -> None:
    """Of members at any of their calls; their successors take the state as a whole, or before
    there is a world, or take nothing as everything starts again."""
    alone = undisturbed(kind)
    dice = random.Random(seed)
    cohort = Cohort(spec(train__steps=STEPS), played(kind), dice)
    cohort.kills = {"a": dice.randrange(8, 90), "b": dice.randrange(8, 90)}
    cohort.respawn, cohort.delivers = bool(seed % 4), bool(seed % 2)
    cohort.keeps_updates = bool(seed % 3)
    results = cohort.run(list("abc"))
    assert check_survivors(cohort, results, alone), "nobody died"


def test_a_rank_that_alone_asks_to_stop_ends_the_job_one_step_later() -> None:
    def script(seat: Any) -> list[int]:
        ours = Script()
        run = elasticd.Run(
            model=ours.model, optimizer=ours.optimizer, loss=ours.loss, data=ours.data()
        )
        made = []
        for step in run:
            made.append(step.number)
            if seat.name == "b" and step.number == 3:
                run.stop("time is up")
        return made

    results = Cohort(spec(train__steps=STEPS), script, random.Random(0)).run(list("abc"))
    assert [result.value for result in results.values()] == [[1, 2, 3, 4]] * 3


def test_a_reason_to_stop_is_text() -> None:
    def script(seat: Any) -> None:
        ours = Script()
        run: Any = elasticd.Run(
            model=ours.model, optimizer=ours.optimizer, loss=ours.loss, data=ours.data()
        )
        run.stop(3)

    error = Cohort(spec(), script, random.Random(0)).run(["a"])["a"].error
    assert str(error) == "run.stop() takes a reason in words, not int"
