"""What stands between Run(…) and the loop reads of the state what it read at step 0, whoever runs
it: a base rate, or weights to be compared with later."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest

import elasticd
from tests.unit.train.cohort import Cohort, spec

WEIGHTS = mx.array([[7.0, -3.0]])


def seen(start: Path | None, gone: bool) -> tuple[list[Any], list[Any]]:
    """The weights that ranks saw above their loops, in the order in which they came, and those that
    the ones saw at their ends who lived. The first dies, and has a successor.

    Args:
        gone: the file with which it begins is not there any more when the successor comes.
    """
    above: list[Any] = []
    ends: list[Any] = []

    def script(seat: Any) -> None:
        model = nn.Linear(2, 1, bias=False)
        model.weight = mx.array([[1.0, 1.0]])
        optimizer = optim.SGD(0.1)
        if gone and above and start is not None:
            start.unlink(missing_ok=True)
        data = [(mx.array([1.0, 2.0]), mx.array([0.5]))] * 8
        run = elasticd.Run(
            model=model,
            optimizer=optimizer,
            loss=lambda model, x, y: ((model(x) - y) ** 2).mean(),
            data=data,
        )
        above.append((model.weight.tolist(), optimizer.learning_rate.item()))
        for step in run:
            optimizer.learning_rate = 0.1 / (1 + step.number)
        ends.append((model.weight.tolist(), optimizer.learning_rate.item()))

    settings = {"train__init_from": str(start)} if start is not None else {}
    cohort = Cohort(spec(train__steps=12, **settings), script, random.Random(1))
    cohort.kills, cohort.respawn = {"a": 60}, True
    for result in cohort.run(["a", "b"]).values():
        assert result.error is None or type(result.error).__name__ == "Killed", result.error
    return above, ends


@pytest.mark.parametrize("from_file", [False, True])
def test_a_successor_sees_above_its_loop_what_was_there_at_step_0(
    tmp_path: Path, from_file: bool
) -> None:
    start = tmp_path / "start.safetensors" if from_file else None
    if start is not None:
        mx.save_safetensors(str(start), {"weight": WEIGHTS})
    above, ends = seen(start, gone=False)
    assert len(above) == 3 and len(ends) == 2
    first = WEIGHTS.tolist() if from_file else [[1.0, 1.0]]
    assert [weights for weights, _ in above] == [first] * 3
    assert len({rate for _, rate in above}) == 1
    assert ends[0] == ends[1] and ends[0][0] != first


def test_where_the_first_weights_are_gone_the_newest_are_seen_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = tmp_path / "start.safetensors"
    mx.save_safetensors(str(start), {"weight": WEIGHTS})
    above, ends = seen(start, gone=True)
    assert [weights == WEIGHTS.tolist() for weights, _ in above] == [True, True, False]
    assert ends[0] == ends[1]
    said = capsys.readouterr().err
    assert f"init_from: {start}" in said and "reads the newest weights" in said


class Copies(optim.SGD):
    """Goes on from copies of the weights, as with weights in float32 of a model in float16."""

    def init_single(self, parameter: mx.array, state: dict[str, Any]) -> None:
        super().init_single(parameter, state)
        state["own"] = mx.array(parameter)

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict[str, Any]
    ) -> mx.array:
        state["own"] = state["own"] - self.learning_rate * gradient
        result: mx.array = state["own"]
        return result


@pytest.mark.parametrize("how", ["loaded", "init_from", "touched", "frozen too", "not at all"])
def test_an_optimizer_that_keeps_copies_has_those_of_the_weights_given_last(
    tmp_path: Path, how: str
) -> None:
    given = {"loaded", "init_from", "frozen too"}

    def script(seat: Any) -> list[Any]:
        model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
        if how == "frozen too":
            model.layers[0].freeze()
        optimizer = Copies(0.0)
        run = elasticd.Run(
            model=model,
            optimizer=optimizer,
            loss=lambda model, x: model(x).sum(),
            data=[mx.array([1.0, 2.0])] * 8,
        )
        if how == "touched":
            optimizer.state["layers"][1]["weight"]["own"] = mx.array([[4.0, 4.0]])
        if how not in ("init_from", "not at all"):
            model.update({"layers": [{"weight": mx.full((2, 2), 5.0)}, {"weight": WEIGHTS}]})
        begun = model.layers[1].weight.tolist()
        for _ in run:
            pass
        return [begun, model.layers[1].weight.tolist()]

    start = tmp_path / "start.safetensors"
    mx.save_safetensors(
        str(start), {"layers.0.weight": mx.zeros((2, 2)), "layers.1.weight": WEIGHTS}
    )
    settings = {"train__init_from": str(start)} if how == "init_from" else {}
    cohort = Cohort(spec(train__steps=4, **settings), script, random.Random(1))
    results = [result.value for result in cohort.run(["a", "b"]).values()]
    assert results[0] == results[1]
    (begun, ended) = results[0]
    if how in given:
        assert begun == ended == WEIGHTS.tolist()
    else:
        assert ended == (begun if how == "not at all" else [[4.0, 4.0]])
