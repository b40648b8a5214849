"""The script's variables are looked at, and not kept."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from elasticd.train.steps.scriptnames import names

HERE = globals()


class Gradients:
    pass


def test_what_a_function_lets_go_is_gone() -> None:
    def train() -> tuple[bool, bool]:
        grads = Gradients()
        gone = weakref.ref(grads)
        seen = names(sys._getframe(), HERE)["grads"] is grads
        del grads
        return seen, gone() is None

    assert train() == (True, True)


def test_what_the_script_has_kept_of_its_variables_stays() -> None:
    def train(rate: float) -> dict[str, Any]:
        settings = locals()
        names(sys._getframe(), HERE)
        return settings

    assert train(0.5)["rate"] == 0.5


def test_variables_of_the_functions_around_and_of_the_module_are_found() -> None:
    def train() -> dict[str, Any]:
        inner = 2
        assert inner
        return names(sys._getframe(), HERE)

    outer = 1
    found = train()
    assert (found["inner"], found["outer"], found["Gradients"]) == (2, outer, Gradients)
