"""Scripts that ask for each step themselves."""

from __future__ import annotations

from typing import Any

import pytest

import elasticd
from tests.unit.train.steps.test_bodies import STEPS, Script, undisturbed


@pytest.mark.parametrize("steps", [STEPS, 3])
def test_a_script_that_calls_next_itself_ends_as_one_that_loops(
    steps: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """It holds the loop in its last body still, or has left it, when it ends."""

    class Asks(Script):
        def run(self, seat: Any) -> dict[str, Any]:
            run = elasticd.Run(
                model=self.model, optimizer=self.optimizer, loss=self.loss, data=self.data()
            )
            loop = iter(run)
            losses = {step.number: step.loss for step in (next(loop) for _ in range(steps))}
            run._conclude()
            return {"ends": self.ends(), "losses": losses, "checkpoints": seat.checkpoints}

    class Loops(Script):
        high = True

    asked = undisturbed(Asks, "abc")
    assert asked == undisturbed(Loops, steps=steps)
    assert capsys.readouterr().err.count("write `for step in run`") == 1
