"""What an optimizer of one's own can't keep, and what its user is told."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim
import pytest

import elasticd
from elasticd.errors import UsageError
from tests.unit.train.test_misuse import DATA, Model, loss, outcome

HIDDEN = itertools.count(1)


class Slotted:
    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen = 0


class Odd(optim.SGD):
    """Whose updates keep something that can't be kept alike."""

    def __init__(self, keep: Callable[[Any], None]) -> None:
        super().__init__(0.1)
        self.last, self.log, self.names = 0.0, [], set()  # type: ignore[var-annotated]
        self.slotted = Slotted()
        self._keep = keep

    def apply_gradients(self, gradients: Any, parameters: Any) -> Any:
        self._keep(self)
        return super().apply_gradients(gradients, parameters)


@pytest.mark.parametrize(
    ("keep", "says"),
    [
        (lambda o: setattr(o, "last", time.perf_counter()), r"optimizer\.last: the same update"),
        (lambda o: o.names.add(len(o.names)), r"optimizer\.names is a set that changes"),
        (lambda o: setattr(o.slotted, "seen", 1), r"optimizer\.slotted is a Slotted that changes"),
        (lambda o: setattr(o, "last", deque([o.last])), r"optimizer\.last is a deque that changes"),
        (lambda o: o.log.extend([0.5] * 1001), r"optimizer\.log is a list that .* up to 1000"),
        (lambda o: setattr(o, "learning_rate", next(HIDDEN)), "made twice came to other values"),
    ],
)
def test_what_an_optimizer_can_not_keep_is_refused_before_step_1(
    keep: Callable[[Any], None], says: str
) -> None:
    def script(seat: Any) -> None:
        for _ in elasticd.Run(model=Model(), optimizer=Odd(keep), loss=loss, data=DATA):
            raise AssertionError("a step was made")

    error = outcome(script)
    assert isinstance(error, UsageError)
    with pytest.raises(UsageError, match=says):
        raise error


def test_what_becomes_too_long_in_an_optimizer_ends_the_job_by_name() -> None:
    """Who joins would go on without it."""
    steps: list[int] = []

    def script(seat: Any) -> None:
        grows = Odd(lambda o: o.log.extend([0.5] * 400))
        for step in elasticd.Run(model=Model(), optimizer=grows, loss=loss, data=DATA):
            steps.append(step.number)

    error = outcome(script)
    assert isinstance(error, UsageError)
    with pytest.raises(UsageError, match=r"optimizer\.log is a list that .* up to 1000"):
        raise error
    assert steps in ([1, 2], [1, 2, 3])


def test_a_tool_of_an_optimizer_may_come_in_any_update() -> None:
    def script(seat: Any) -> None:
        def keep(optimizer: Any) -> None:
            optimizer._plan, optimizer.last = object(), mx.square

        for _ in elasticd.Run(model=Model(), optimizer=Odd(keep), loss=loss, data=DATA):
            pass

    assert outcome(script) is None
