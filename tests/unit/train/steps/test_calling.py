"""run.on_main: every rank gets what one has returned, whoever dies in between."""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest
from mlx.utils import tree_flatten

import elasticd
from elasticd.errors import UsageError
from elasticd.train.alone import AloneSeat
from elasticd.train.steps.seat import HOST
from tests.unit.train import models
from tests.unit.train.cohort import Cohort, Killed, Result, spec

STEPS = 4


class Script:
    """Calls above the loop, above the update and below it; what they return goes into the state."""

    high = False

    def __init__(self) -> None:
        self.seen: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        self.runs: list[str] = []

    def __call__(self, seat: Any) -> str:
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        optimizer = optim.AdamW(learning_rate=1e-2, eps=1e-3)
        loss, data = models.loss, models.samples()
        run = elasticd.Run(model=model, optimizer=optimizer, loss=loss, data=data)

        def decide() -> dict[str, Any]:
            seat._call()  # it may be killed here
            self.runs.append(seat.name)
            return {"who": seat.name, "run": len(self.runs), "pair": (1, mx.array([2.0]))}

        def call(body: int) -> float:
            found = run.on_main(decide)
            assert found["pair"][0] == 1 and found["pair"][1].item() == 2.0
            self.seen[seat.name][body].append(f"{found['who']} {found['run']}")
            return 1e-2 / (1 + int(found["run"]))

        rate = call(0)
        steps = run if self.high else run.steps()
        for step in steps:
            number = step.number
            if not self.high:
                optimizer.learning_rate = call(number)
                loss_and_grad: Any = nn.value_and_grad(model, loss)
                for batch in step.micro_batches():
                    step.accumulate(*loss_and_grad(model, batch))
                step.apply()
            if step.late:
                del self.seen[seat.name][number]
                continue
            optimizer.learning_rate = call(number) + rate
        kept: Any = tree_flatten([model.parameters(), optimizer.state])
        return str([(path, array.tolist()) for path, array in kept])


class High(Script):
    high = True


def perform(script: Script, seed: int, **more: Any) -> tuple[Cohort, dict[str, Result]]:
    cohort = Cohort(spec(train__steps=STEPS), script, random.Random(seed))
    for name, value in more.items():
        setattr(cohort, name, value)
    return cohort, cohort.run(["a", "b", "c"])


def check(script: Script, results: dict[str, Result]) -> None:
    """All that lived to the end have the same state, and saw the same in each body."""
    ends = {r.value for r in results.values() if r.error is None}
    assert len(ends) == 1, [r.error for r in results.values()]
    lived = [name for name, result in results.items() if result.error is None]
    for body in range(STEPS + 1):
        seen = {tuple(script.seen[n][body]) for n in lived if body in script.seen[n]}
        assert len(seen) <= 1, (body, seen)


@pytest.mark.parametrize("kind", [Script, High])
def test_every_rank_gets_what_main_has_returned(kind: type[Script]) -> None:
    script = kind()
    cohort, results = perform(script, 1)
    check(script, results)
    assert set(script.runs) == {"a"}
    assert set(cohort.made.values()) == ({1} if kind is High else {1, 2})


@pytest.mark.parametrize("respawn", [False, True])
@pytest.mark.parametrize("at", range(2, 60, 3))
@pytest.mark.parametrize("kind", [Script, High])
def test_the_next_main_runs_it_where_main_dies(kind: type[Script], at: int, respawn: bool) -> None:
    script = kind()
    _, results = perform(script, at, kills={"a": at}, respawn=respawn)
    assert results["a"].error is None or isinstance(results["a"].error, Killed)
    check(script, results)


@pytest.mark.parametrize("step", [2, 3])
def test_who_is_a_step_behind_gets_the_same(step: int) -> None:
    for keeps in (True, False):
        script = Script()
        _, results = perform(script, step, dies_behind={"a": step}, keeps_updates=keeps)
        check(script, results)


# --- alone ----------------------------------------------------------------------------------------


class Alone:
    def __init__(self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, inside: Any = None) -> None:
        monkeypatch.setattr(
            AloneSeat, "find", classmethod(lambda cls: AloneSeat(spec(train__steps=2), tmp_path))
        )
        HOST._seat = None
        self.model = nn.Linear(4, 3)
        self.inside = inside
        self.run = elasticd.Run(
            model=self.model, optimizer=optim.SGD(0.1), loss=self.loss, data=models.samples()
        )

    def loss(self, model: Any, batch: Any) -> mx.array:
        if self.inside is not None:
            self.run.on_main(self.inside)
        return models.loss(model, batch)


def test_alone_it_is_called_at_once(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Alone(tmp_path, monkeypatch).run
    value = {"a": [1, (2.5, None)], "b": b"x", 3: np.arange(3), "big": 1 << 90}
    assert str(run.on_main(lambda: value)) == str(value)
    drawn = []
    for step in run:
        before = random.random(), float(mx.random.uniform()), float(np.random.rand())
        del before
        state = random.getstate()
        drawn.append(run.on_main(lambda: (random.random(), float(mx.random.uniform()))))
        assert random.getstate() == state, step
    assert drawn[0] != drawn[1]
    with pytest.raises(UsageError, match="behind the loop"):
        run.on_main(lambda: 1)


def test_what_can_t_be_told_is_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Alone(tmp_path, monkeypatch).run
    with pytest.raises(UsageError, match="a set at \\['x'\\]"):
        run.on_main(lambda: {"x": {1}})
    with pytest.raises(UsageError, match="the others wait"):
        run.on_main(lambda: 1)


@pytest.mark.parametrize("in_body", [False, True])
def test_a_script_may_not_catch_what_its_function_raises(
    in_body: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Alone(tmp_path, monkeypatch).run
    steps = iter(run)
    if in_body:
        next(steps)
    with contextlib.suppress(FileNotFoundError):
        run.on_main((tmp_path / "rate").read_text)
    with pytest.raises(UsageError, match="raised FileNotFoundError, which the script caught"):
        next(steps)


def test_where_it_can_t_be_called_it_says_so(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = Alone(tmp_path, monkeypatch, inside=lambda: 1)
    with pytest.raises(UsageError, match="inside of what"):
        alone.run.on_main(lambda: alone.run.on_main(lambda: 1))
    alone = Alone(tmp_path, monkeypatch, inside=lambda: 1)
    with pytest.raises(UsageError, match="where gradients are computed"):
        next(iter(alone.run))


def test_what_is_too_large_is_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="1048576 are the most"):
        Alone(tmp_path, monkeypatch).run.on_main(lambda: b"x" * (1 << 20))
    run = Alone(tmp_path, monkeypatch).run
    run.on_main(lambda: b"x" * 600_000)
    with pytest.raises(UsageError, match="above the loop is part of the state"):
        run.on_main(lambda: b"x" * 600_000)
