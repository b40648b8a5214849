"""Steps that take longer than those before are no hangs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .cluster import JobShape, Setup
from .longer import Longer
from .run import Result, simulate
from .test_poison import ending
from .test_sim import passes

SHAPE = JobShape(steps=40, user_code_seconds=600.0)


def hung(result: Result) -> list[str]:
    """What was said of trainers that were ended for a hang."""
    return [line for line in result.transcript if " kills " in line and " it hung: " in line]


def test_who_has_nothing_to_compute_has_not_delivered() -> None:
    shape = replace(SHAPE, grains=2)
    setup = Setup(seed=1, nodes=4, jobs=(shape,), longer=Longer(12, 6.0, 5))
    assert not hung(passes(simulate(setup))), "else 4 seconds were allowed, and not 16"


@pytest.mark.parametrize("first", [1, 12])
@pytest.mark.parametrize("seconds", [5.0, 16.0, 100.0])
@pytest.mark.parametrize("nodes", [2, 3])
def test_reductions_that_take_longer_pass_when_they_were_tried_a_few_times(
    nodes: int, seconds: float, first: int
) -> None:
    """As over a link that is slow, or becomes so."""
    longer = Longer(first, seconds, reducing=True)
    shape = replace(SHAPE, steps=20)
    result = passes(simulate(Setup(seed=1, nodes=nodes, jobs=(shape,), longer=longer)))
    assert ending(result)[0] == "finished"
    assert sum("nothing moved for" in line for line in result.transcript) <= 20


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("seconds", [2.0, 7.0, 30.0])
@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("seed", [1, 2])
def test_longer_steps_end_a_trainer_once_at_most(
    nodes: int, seconds: float, every: int, seed: int
) -> None:
    shape = replace(SHAPE, steps=24)  # twelve that are short, and as many behind the first long one
    setup = Setup(seed=seed, nodes=nodes, jobs=(shape,), longer=Longer(12, seconds, every))
    result = passes(simulate(setup))
    assert ending(result)[0] == "finished"
    assert len(hung(result)) <= nodes, "what the first of them shows is learned"
