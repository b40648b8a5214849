"""Numbers of the script's own that a loss or ``collate`` changes: globals, variables around a
function, attributes of a module or another object.

Ranks make different numbers of passes, and who joins begins with none. So what goes on with such a
number has other bits there. What is only counted does no harm: nobody else reads it.
"""

from __future__ import annotations

import dis
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import CellType, CodeType, FunctionType
from typing import Any

from mlx.nn.layers.base import Module

from elasticd.train.steps.generators import attributes
from elasticd.train.steps.reach import is_scripts, reached

_NUMBERS = (int, float, bool)
_KINDS = {"GLOBAL": "GLOBAL", "NAME": "GLOBAL", "DEREF": "DEREF", "ATTR": "ATTR"}
_Uses = Counter[tuple[str, str]]
"""How often there is code for it, by kind and name."""


class CountedNumbers:
    """Of one run; for the training thread alone."""

    def __init__(self, *functions: Any) -> None:
        """``functions`` are called for each grain."""
        self._functions = functions
        self._read: dict[str, Callable[[], Any]] = {}
        """What may be found, by name."""
        self._news: list[str] = []

    def loop_begins(self) -> None:
        """The script has made what they need."""
        with suppress(Exception):  # a job doesn't end for this, whatever the script holds
            self._read = _places(self._functions)

    @contextmanager
    def around(self) -> Iterator[None]:
        """One of the functions is called inside."""
        before = {name: read() for name, read in self._read.items()}
        yield
        for name, was in before.items():
            now = self._read[name]()
            if type(was) in _NUMBERS and type(now) in _NUMBERS and now != was and now == now:
                del self._read[name]
                self._news.append(
                    f"{name}: the loss or collate changes this number for each grain, and reads it "
                    "elsewhere. Ranks compute different grains, and who joins begins anew: if a "
                    "batch or a loss depends on it the bits do, too. Give the loss an argument "
                    "named step, or change the number in the loop's body and keep it in run.state"
                )

    def watched(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """It, called so."""

        def call(given: Any) -> Any:
            with self.around():
                return function(given)

        return call

    def news(self) -> list[str]:
        """What is to be said, each once."""
        news, self._news = self._news, []
        return news


def _places(functions: tuple[Any, ...]) -> dict[str, Callable[[], Any]]:
    """How to read what the code that ``functions`` lead to assigns, and reads elsewhere, too."""
    found = reached(functions, lambda thing: True).found
    ours = [f for f in found if type(f) is FunctionType and is_scripts(f.__globals__)]
    loads: _Uses = Counter()
    stores: _Uses = Counter()
    for code in {f.__code__ for f in ours}:
        _count(code, loads, stores)
    wanted = {use for use in stores if loads[use] > stores[use]}
    places: dict[str, Callable[[], Any]] = {}
    for function in ours:
        for kind, name in wanted:
            if kind == "GLOBAL" and name in function.__globals__:
                places[name] = _reader(function.__globals__, name)
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=False
        ):
            if ("DEREF", name) in wanted:
                places[name] = _cell_reader(cell)
    for thing in found:
        own = attributes(thing)
        for name in own:
            # A module's private ones are of its caches, as a rule.
            if ("ATTR", name) in wanted and not (isinstance(thing, Module) and name[0] == "_"):
                places[f"{type(thing).__name__}.{name}"] = _reader(own, name)
    return places


def _reader(names: dict[str, Any], name: str) -> Callable[[], Any]:
    return lambda: names.get(name)


def _cell_reader(cell: CellType) -> Callable[[], Any]:
    def read() -> Any:
        with suppress(ValueError):  # not assigned yet
            return cell.cell_contents
        return None

    return read


def _count(code: CodeType, loads: _Uses, stores: _Uses) -> None:
    for step in dis.get_instructions(code):
        way, _, kind = step.opname.partition("_")
        use = _KINDS.get(kind, ""), str(step.argval)
        if use[0] and way == "LOAD":
            loads[use] += 1
        elif use[0] and way == "STORE" and code.co_name != "__init__":
            stores[use] += 1
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _count(constant, loads, stores)
