"""Arrays that are the script's own, and that its bodies change."""

from __future__ import annotations

import io
import random
import tempfile
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest
from mlx.utils import tree_map

import elasticd
from tests.unit.train.cohort import Cohort, spec

MEANT = "the loop's body changes these arrays, and they are the script's own"


def said(
    loop: Callable[[elasticd.Run, nn.Module], None], capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """What stands on stderr of a run whose loop is ``loop``. (It is to be in the module that calls
    ``Run(…)``.)"""

    def script(seat: Any) -> None:
        mx.random.seed(0)  # an average that is far from small weights isn't sure to be one
        model = nn.Linear(2, 1)
        run = elasticd.Run(
            model=model,
            optimizer=optim.Adam(0.1),
            loss=lambda model, x, y: nn.losses.mse_loss(model(x), y),
            data=[(mx.ones(2) * (n / 20), mx.ones(1)) for n in range(20)],
        )
        loop(run, model)

    (result,) = Cohort(spec(train__steps=6), script, random.Random(0)).run(["a"]).values()
    if result.error is not None:
        raise result.error
    return capsys.readouterr().err.splitlines()


def follow(average: Any, model: nn.Module) -> Any:
    now = tree_map(lambda a, p: 0.9 * a + 0.1 * p, average, model.trainable_parameters())
    mx.eval(now)
    return now


class Average:
    """As a callback has it: there is nothing before the first step."""

    def __init__(self) -> None:
        self.shadow: Any = None

    def step_ends(self, model: nn.Module) -> None:
        first = self.shadow is None
        now = model.trainable_parameters()
        self.shadow = tree_map(share, now) if first else follow(self.shadow, model)


def share(array: mx.array) -> mx.array:
    made = array + 0
    mx.eval(made)
    return made


class Trainer:
    def __init__(self) -> None:
        self.callbacks = [Average()]


def in_a_callback(run: elasticd.Run, model: nn.Module) -> None:
    trainer = Trainer()
    for _ in run:
        trainer.callbacks[0].step_ends(model)


def in_a_module(run: elasticd.Run, model: nn.Module) -> None:
    teacher = nn.Linear(2, 1)
    for _ in run:
        teacher.update(follow(teacher.parameters(), model))


def in_a_variable(run: elasticd.Run, model: nn.Module) -> None:
    average: Any = tree_map(share, model.trainable_parameters())
    for _ in run:
        average.update(follow(average, model))


def in_a_closure(run: elasticd.Run, model: nn.Module) -> None:
    def made() -> Callable[[], None]:
        average = tree_map(share, model.trainable_parameters())

        def update() -> None:
            nonlocal average
            average = follow(average, model)

        return update

    update = made()
    for _ in run:
        update()


def behind_much(run: elasticd.Run, model: nn.Module) -> None:
    samples = [(mx.ones(2), mx.ones(2)) for _ in range(1001)]
    run.state.held = [[mx.array(float(n))] for n in range(6000)]
    trainer = Trainer()
    for _ in run:
        trainer.callbacks[0].step_ends(model)
    assert samples


def uniform(run: elasticd.Run, model: nn.Module) -> None:
    kept = {"count": mx.zeros(1024), "order": mx.arange(8)}
    for step in run:
        kept["count"] = mx.full((1024,), 2.0**step.number)
        mx.eval(kept["count"])


def in_another_order(run: elasticd.Run, model: nn.Module) -> None:
    kept = {"order": mx.arange(8)}
    mx.eval(kept)
    for step in run:
        kept["order"] = mx.roll(mx.arange(8), step.number)
        mx.eval(kept)


def in_place(run: elasticd.Run, model: nn.Module) -> None:
    queue = mx.zeros((12, 2))
    for step in run:
        queue[step.number - 1] = model["weight"][0]
        mx.eval(queue)


def ready_made(run: elasticd.Run, model: nn.Module) -> None:
    ema = elasticd.EMA(model, 0.9)
    for _ in run:
        ema.update()


@pytest.mark.parametrize(
    ("loop", "name"),
    [
        (in_a_callback, "trainer.callbacks.0.shadow"),
        (in_a_module, "teacher"),
        (in_a_variable, "average"),
        (in_a_closure, "update.average"),
        (behind_much, "trainer.callbacks.0.shadow"),
        (uniform, "kept"),
        (in_another_order, "kept"),
        (in_place, "queue"),
        (ready_made, "ema._average"),
    ],
)
def test_what_no_state_has_is_named_once(
    loop: Any, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = said(loop, capsys)
    assert line.startswith(f"elasticd: {name}: {MEANT}")
    assert "run.state" in line and "run.track" in line


def tracks_it(run: elasticd.Run, model: nn.Module) -> None:
    ema, trainer, teacher = elasticd.EMA(model, 0.9), Trainer(), nn.Linear(2, 1)
    run.track("ema", ema)
    run.track("teacher", teacher)
    run.state.average = average = tree_map(share, model.trainable_parameters())
    for _ in run:
        ema.update()
        teacher.update(follow(teacher.parameters(), model))
        run.state.average = average = follow(run.state.average, model)
    assert trainer.callbacks and average


def looks_at_the_state(run: elasticd.Run, model: nn.Module) -> None:
    optimizer: Any = run._optimizer
    state, now = [model.state, optimizer.state], model.trainable_parameters()
    for _ in run:
        now, state = model.trainable_parameters(), [model.state, optimizer.state]
    assert now and state


def has_names_of_one_step(run: elasticd.Run, model: nn.Module) -> None:
    x = mx.ones(2)
    for step in run:
        x = mx.full((4, 2), step.number)
        out = model(x)
        mx.eval(out)


def only_reads(run: elasticd.Run, model: nn.Module) -> None:
    kept: dict[str, Any] = {
        "first": mx.ones(3),
        "nan": mx.array([float("nan"), 1.0]),
        "teacher": nn.Linear(2, 1),
        "optimizer": optim.Adam(0.1),
    }
    mx.eval(kept["nan"])
    for _ in run:
        mx.eval(kept["first"] + 1)


def keeps_it_among_much(run: elasticd.Run, model: nn.Module) -> None:
    run.state.held = [[mx.array(float(n))] for n in range(6000)]
    queue = mx.zeros((12, 2))
    run.state.zqueue = [queue]
    for step in run:
        queue[step.number - 1] = model["weight"][0]
        mx.eval(queue)


def assigns_anew(run: elasticd.Run, model: nn.Module) -> None:
    fn: Any = nn.value_and_grad(model, lambda x, y: nn.losses.mse_loss(model(x), y))
    x, y = mx.ones((4, 2)), mx.ones((4, 1))
    loss, grads = fn(x, y)
    params = model.trainable_parameters()
    for step in run:
        x, y = mx.full((4, 2), step.number), mx.full((4, 1), step.number)
        loss, grads = fn(x, y)
        params = model.trainable_parameters()
        mx.eval(x, y, loss, grads, params)


def looks_by_attribute(run: elasticd.Run, model: nn.Module) -> None:
    holder, before = Average(), model.trainable_parameters()
    for step in run:
        holder.shadow, before = before, model.trainable_parameters()
        holder.loss = mx.array([float(step.number)])  # type: ignore[attr-defined]
        mx.eval(holder.loss)  # type: ignore[attr-defined]


def keeps_gradients(run: elasticd.Run, model: nn.Module) -> None:
    fn: Any = nn.value_and_grad(model, lambda x, y: nn.losses.mse_loss(model(x), y))
    holder = Average()
    for _ in run:
        x, y = mx.random.normal((4, 2)), mx.random.normal((4, 1))
        _, holder.shadow = fn(x, y)
        mx.eval(holder.shadow)


class Adapter:
    """What is kept is told by functions."""

    def __init__(self, get: Any, put: Any) -> None:
        self.state_dict, self.load_state_dict = get, put


kept_elsewhere: Any = Trainer()


def tracks_by_functions(run: elasticd.Run, model: nn.Module) -> None:
    kept_elsewhere.callbacks[0].shadow = tree_map(share, model.trainable_parameters())

    def put(state: Any) -> None:
        kept_elsewhere.callbacks[0].shadow = state

    run.track("average", Adapter(lambda: kept_elsewhere.callbacks[0].shadow, put))
    for _ in run:
        kept_elsewhere.callbacks[0].step_ends(model)
    kept_elsewhere.callbacks[0] = Average()


class Surprising(dict[str, Any]):
    """Nobody has asked it for anything."""

    def items(self) -> Any:
        raise RuntimeError("nobody asked")

    __len__ = __iter__ = values = items


class Posing:
    """It says that it is a list."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("nobody asked")

    @__class__.setter
    def __class__(self, kind: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("nobody asked")


def holds_strange_things(run: elasticd.Run, model: nn.Module) -> None:
    strange: Any = [Surprising(a=mx.ones(2)), Posing()]
    for _ in run:
        pass
    assert len(strange) == 2


def keeps_placeholders(run: elasticd.Run, model: nn.Module) -> None:
    holder = Average()

    def twice(x: mx.array) -> mx.array:
        holder.shadow = [x, x * 2]
        return x

    compiled, mapped = mx.compile(twice), mx.vmap(twice)
    compiled(mx.ones(2))
    for step in run:
        (mapped if step.number % 2 else compiled)(mx.ones((2, 2)))


def reads_nothing_for_it(run: elasticd.Run, model: nn.Module) -> None:
    with tempfile.TemporaryDirectory() as folder:
        mx.save_safetensors(f"{folder}/a.safetensors", {"a": mx.ones(2)})
        gone: Any = mx.load(f"{folder}/a.safetensors")
        lazy = {"sum": mx.ones((64,)) + 1}
    for _ in run:
        pass
    assert gone and lazy
    graph = io.StringIO()
    mx.export_to_dot(graph, lazy["sum"])
    assert "Add" in graph.getvalue()  # nobody has evaluated it


@pytest.mark.parametrize(
    "loop",
    [
        tracks_it,
        looks_at_the_state,
        has_names_of_one_step,
        only_reads,
        keeps_it_among_much,
        assigns_anew,
        looks_by_attribute,
        keeps_gradients,
        tracks_by_functions,
        holds_strange_things,
        keeps_placeholders,
        reads_nothing_for_it,
    ],
)
def test_nothing_is_said_of_others(loop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(loop, capsys) == []
