"""Python loads this at its start where PYTHONPATH names this folder. It watches a script's loop.

``GALLERY_HOLD`` names a file with a number: no step behind it begins its body before the number
grows, so that a job of milliseconds lasts until it was broken. It holds no body of a world that has
ended: the next one may have need of what that body leaves. ``GALLERY_PACE`` is how many seconds
each step takes besides. ``GALLERY_RECORD`` names a file for the digest behind the loop and the last
step, which a script that runs alone tells nobody. The script itself stays as it was written.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

WATCHED = "elasticd.train.run"
POLL_SECONDS = 0.02

Loop = Callable[[Any], Iterator[Any]]


def hold(run: Any, step: int) -> None:
    """Wait until the body of this step may begin."""
    time.sleep(float(os.environ.get("GALLERY_PACE", "0")))
    if name := os.environ.get("GALLERY_HOLD"):
        while step > _number(Path(name)) and in_world(run):
            time.sleep(POLL_SECONDS)


def in_world(run: Any) -> bool:
    from elasticd.errors import GenerationLost  # not before the script has it

    try:
        run._seat.check()
    except GenerationLost:
        return False
    return True


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except OSError:
        return sys.maxsize


def record(run: Any, step: int) -> None:
    """Write what a loop that is over came to."""
    if name := os.environ.get("GALLERY_RECORD"):
        Path(name).write_text(json.dumps({"digest": run.digest(), "step": step}))


def watched(loop: Loop) -> Loop:
    """``Run.steps`` or ``Run.__iter__``, held and recorded."""

    @functools.wraps(loop)
    def steps(run: Any) -> Iterator[Any]:
        last = 0
        try:
            for step in loop(run):
                last = step.number
                hold(run, last)
                yield step
        except GeneratorExit:  # the script has left the loop
            record(run, last)
            raise
        record(run, last)

    return steps


class Finder:
    """Finds the module that is watched, once; the class in it is changed when it is there."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != WATCHED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def load_and_watch(module: Any) -> None:
            load(module)
            module.Run.steps = watched(module.Run.steps)
            module.Run.__iter__ = watched(module.Run.__iter__)

        spec.loader.exec_module = load_and_watch  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Finder())
