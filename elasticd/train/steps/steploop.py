"""What ``run.steps()`` returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from elasticd.train.steps.step import Step


class StepLoop(Iterator[Step]):
    """A ``for`` alone holds the loop that it begins: so ``break`` leaves it at once, also where a
    variable holds this one."""

    def __init__(self, begin: Callable[[], Iterator[Step]]) -> None:
        self._begin = begin
        self._asked: Iterator[Step] | None = None
        """The loop of a script that calls ``next()``."""

    def __iter__(self) -> Iterator[Step]:
        return self._begin() if self._asked is None else self._asked

    def __next__(self) -> Step:
        if self._asked is None:
            self._asked = self._begin()
        return next(self._asked)
