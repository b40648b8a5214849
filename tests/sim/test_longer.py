"""Steps that take longer than those before are no hangs."""

from __future__ import annotations

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


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("seconds", [2.0, 7.0, 30.0])
@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("seed", [1, 2])
def test_longer_steps_end_a_trainer_once_at_most(
    nodes: int, seconds: float, every: int, seed: int
) -> None:
    setup = Setup(seed=seed, nodes=nodes, jobs=(SHAPE,), longer=Longer(12, seconds, every))
    result = passes(simulate(setup))
    assert ending(result)[0] == "finished"
    assert len(hung(result)) <= nodes, "what the first of them shows is learned"
