"""The script's variables are looked at, and not kept."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from elasticd.train.steps.scriptnames import assigned_later, names

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


def test_names_that_are_assigned_behind_the_loop_s_beginning() -> None:
    source = """
above = again = outer = 1
def bump():
    global outer
    outer += 1
def loop():
    kept, anew, around = {}, 1, 1
    def count():
        nonlocal around
        around += 1
    for step in look():
        anew = 2
        kept["a"] = step
        count()
loop()
again = 2
"""
    found: list[set[str]] = []

    def look() -> list[int]:
        found.append(assigned_later(sys._getframe(1)))
        return []

    exec(source, {"look": look, "__name__": "script"})
    assert found == [{"again", "outer", "anew", "around", "step"}]
