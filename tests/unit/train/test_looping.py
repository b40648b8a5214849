"""Loops over a run, and what is called in them: what is refused, and what isn't."""

from __future__ import annotations

import contextlib
import random
from math import isfinite
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest

import elasticd
from elasticd.errors import UsageError
from tests.unit.train.cohort import Cohort, spec
from tests.unit.train.test_misuse import DATA, Model, begin, grads_become, loss, outcome

BAD = 5


def test_what_is_tracked_in_the_body_is_told_at_once() -> None:
    def script(seat: Any) -> None:
        model = Model()
        run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss, data=DATA)
        for _ in run:
            with pytest.raises(UsageError, match=r"run.track\('seen', …\) belongs above the loop"):
                run.track("seen", [])

    assert outcome(script) is None


def test_what_is_tracked_has_a_name() -> None:
    def script(seat: Any) -> None:
        run, _ = begin(Model())
        with pytest.raises(UsageError, match="takes a name in words, not int"):
            run.track(7, [])

    assert outcome(script) is None


@pytest.mark.parametrize("call", ["evaluate", "on_main"])
def test_what_is_called_has_to_be_a_function(call: str) -> None:
    def script(seat: Any) -> None:
        run, _ = begin(Model())
        with pytest.raises(UsageError, match=rf"run.{call}\(\) takes a function, not 7"):
            getattr(run, call)(7)

    assert outcome(script) is None


def test_a_loop_behind_the_last_step_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    def script(seat: Any) -> list[int]:
        run = elasticd.Run(model=Model(), optimizer=optim.SGD(0.1), loss=loss, data=DATA)
        return [sum(1 for _ in run) for _ in range(3)]

    results = Cohort(spec(), script, random.Random(0)).run(["a", "b"])
    assert [results[name].value for name in "ab"] == [[4, 0, 0]] * 2
    assert capsys.readouterr().err.count("this loop over the run is empty") == 2


def test_a_second_loop_while_steps_are_left_is_refused() -> None:
    def script(seat: Any) -> None:
        run = elasticd.Run(model=Model(), optimizer=optim.SGD(0.1), loss=loss, data=DATA)
        for _ in run:
            break
        for _ in run:
            raise AssertionError("a second loop has a step")

    error = outcome(script)
    assert isinstance(error, UsageError) and "looped over once" in str(error)


class Corrupt(list[Any]):
    """One sample can't be read."""

    def __getitem__(self, index: Any) -> Any:
        if index == BAD:
            raise OSError("corrupt image 5")
        return super().__getitem__(index)


def badly(found: str) -> dict[str, Any]:
    """Arguments for ``Run``: this raises in the middle of training."""

    def raises(*given: Any) -> Any:
        raise OSError("corrupt image 5")

    if found == "data":
        return {"loss": loss, "data": Corrupt(DATA)}
    if found == "collate":
        return {"loss": loss, "data": DATA, "collate": raises}
    return {"loss": raises, "data": DATA}


@pytest.mark.parametrize("found", ["data", "collate", "loss"])
def test_what_ends_the_loop_ends_the_job_though_the_script_catches_it(found: str) -> None:
    """Else the job would be finished, as its script asked."""

    def script(seat: Any) -> None:
        run = elasticd.Run(model=Model(), optimizer=optim.SGD(0.1), **badly(found))
        with contextlib.suppress(OSError):
            for _ in run:
                pass
        run._conclude()

    error = outcome(script)
    assert isinstance(error, OSError) and str(error) == "corrupt image 5"


@pytest.mark.parametrize("found", ["data", "collate", "loss"])
def test_so_does_what_is_raised_among_batches(found: str) -> None:
    def script(seat: Any) -> None:
        model = Model()
        given = badly(found)
        computed = nn.value_and_grad(model, given.pop("loss"))
        run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), **given)
        with contextlib.suppress(OSError):
            for step in run.steps():
                for batch in step.micro_batches():
                    step.accumulate(*computed(model, batch))
                step.apply()
        run._conclude()

    error = outcome(script)
    if found == "loss":  # nobody but the script has seen it
        assert isinstance(error, UsageError)
        assert "left in the middle of step 1" in str(error)
    else:
        assert isinstance(error, OSError) and str(error) == "corrupt image 5"


def test_a_body_that_applies_nothing_ends_the_job_though_the_script_catches_it() -> None:
    def script(seat: Any) -> None:
        run, _ = begin(Model())
        with contextlib.suppress(UsageError):
            for _ in run.steps():
                continue
        run._conclude()

    error = outcome(script)
    assert isinstance(error, UsageError)
    assert "did not call step.apply() for Step(1), or step.skip()" in str(error)


@pytest.mark.parametrize("where", ["above", "reduced", "applied"])
def test_a_loop_is_left_where_ranks_are_alike(where: str) -> None:
    """One may have applied what another has reduced."""

    def script(seat: Any) -> int:
        model = Model()
        run, gradient = begin(model)
        for step in run.steps():
            if where == "above" and step.number == 3:
                break
            for batch in step.micro_batches():
                step.accumulate(*gradient(model, batch))
            if where == "reduced" and step.number == 3:
                break
            step.apply()
            if where == "applied" and step.number == 2:
                break
        run._conclude()
        return int(run._runner.point.step)

    results = Cohort(spec(), script, random.Random(0)).run(["a", "b"])
    if where == "reduced":
        found = [str(results[name].error) for name in "ab"]
        assert any("left in the middle of step 3" in text for text in found), "the job ends by it"
    else:
        assert [results[name].error or results[name].value for name in "ab"] == [2, 2]


@pytest.mark.parametrize("reached", [0, 2])
def test_statistics_that_are_unfrozen_from_above_are_told_with_the_cure(reached: int) -> None:
    def script(seat: Any) -> None:
        model: Any = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm(2))
        if not reached:
            model.unfreeze()
        run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss, data=DATA)
        for step in run:
            assert step.number <= max(reached, 1)
            if step.number == reached:
                model.unfreeze()

    error = outcome(script)
    assert isinstance(error, UsageError)
    assert "changes layers.1.running_mean, which has a gradient too" in str(error)
    assert 'freeze(keys=["running_mean", "running_var"], recurse=False) of layers.1' in str(error)


def test_a_part_of_the_gradients_may_be_assigned() -> None:
    def script(seat: Any) -> None:
        model = Model()
        run, gradient = begin(model)
        before = model.layer.weight.tolist()
        for step in run.steps():
            grads_become(lambda found: {"layer": {"bias": found["layer"]["bias"]}})(
                step, model, gradient
            )
        assert model.layer.weight.tolist() == before

    assert outcome(script) is None


def test_a_dataset_that_grows_is_told_of_once(capsys: pytest.CaptureFixture[str]) -> None:
    def script(seat: Any) -> None:
        data = list(DATA)
        run = elasticd.Run(model=Model(), optimizer=optim.SGD(0.1), loss=loss, data=data)
        for _ in run:
            data.append(data[0])

    assert outcome(script) is None
    said = capsys.readouterr().err
    assert said.count(f"data= has {len(DATA) + 1} samples by now, and had {len(DATA)}") == 1
    assert said.count("never used") == 1


def test_what_is_logged_behind_the_loop_is_told_to_be_shown_nowhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def script(seat: Any) -> None:
        run = elasticd.Run(model=Model(), optimizer=optim.SGD(0.1), loss=loss, data=DATA)
        for _ in run:
            run.log(seen=1.0)
        assert "run.log() is given behind" not in capsys.readouterr().err
        run.log(accuracy=0.5)

    assert outcome(script) is None
    assert "what run.log() is given behind the loop is shown nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("held", ["steps", "for"])
def test_what_stands_behind_a_loop_is_no_state_though_a_variable_holds_it(held: str) -> None:
    def script(seat: Any) -> Any:
        model = Model()
        run, gradient = begin(model)
        loop = run.steps()
        for step in loop if held == "steps" else run.steps():
            grads_become(lambda found: found)(step, model, gradient)
            if step.number == 2:
                break
        model.layer.weight = mx.zeros_like(model.layer.weight)
        run._conclude()
        return model.layer.weight.flatten().tolist()

    results = Cohort(spec(), script, random.Random(0)).run(["a"])
    assert results["a"].error is None and any(results["a"].value or ())


def test_who_leaves_its_loop_in_a_body_that_does_not_count_is_begun_anew() -> None:
    """Its process can't come back into the loop, where the others still are. Nor can it say for the
    job that this is its last step."""
    strayed: list[bool] = []

    def script(seat: Any) -> None:
        model = Model()
        run, gradient = begin(model)
        for step in run.steps():
            grads_become(lambda found: found)(step, model, gradient)
            if not isfinite(step.loss):  # of a late body
                strayed.append(False)
                break
        try:
            run._conclude()
        finally:
            strayed[-1:] = [run._strayed]

    for seed in range(8):
        strayed.clear()
        cohort = Cohort(spec(), script, random.Random(seed))
        cohort.keeps_updates, cohort.dies_behind = False, {"b": 2}
        results = cohort.run(["a", "b", "c"])
        if True in strayed:
            errors = [str(results[name].error) for name in "ac"]
            assert any("from a state in which no loop was left" in text for text in errors)
            return
    raise AssertionError("none came too late")
