"""The variables of the script: those of its module, and of the functions that it is in."""

from __future__ import annotations

import sys
from inspect import CO_OPTIMIZED
from types import FrameType
from typing import Any

_LIBRARY = "elasticd"
_MOST_FRAMES = 30
"""Between the loop and the library, as where it is ``for step in tqdm(run)``."""

_REFERENCES = 3
"""The frame's, our name's, and the count's own."""


def outside(frame: FrameType | None) -> FrameType | None:
    """The nearest frame, from ``frame`` outwards, that isn't the library's."""
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return frame


def _is_ours(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__"))
    return name == _LIBRARY or name.startswith(f"{_LIBRARY}.")


def names(frame: FrameType | None, home: dict[str, Any] | None = None) -> dict[str, Any]:
    """What the script's names stand for, at ``frame``, which may be the library's. ``home``: the
    globals of the module that has called ``Run(…)``."""
    nearest = outside(frame)
    here = _within(nearest, home) or nearest
    if here is None:
        return dict(home or {})
    module = here.f_globals
    # A copy first: threads of the script may add names meanwhile.
    found = {name: value for name, value in dict(module).items() if not name.startswith("__")}
    inner: dict[str, Any] = {}
    while here is not None and here.f_globals is module and here.f_code.co_name != "<module>":
        # What is from around a function is its maker's, whom we come to if it runs still.
        around = set(here.f_code.co_freevars)
        inner = {n: v for n, v in _locals_of(here).items() if n not in around} | inner
        here = here.f_back
    return found | inner


def _within(frame: FrameType | None, module: dict[str, Any] | None) -> FrameType | None:
    """The nearest frame, from ``frame`` outwards, of a module with these globals, if it is near."""
    for _ in range(_MOST_FRAMES):
        if frame is None or frame.f_globals is module:
            return frame
        frame = frame.f_back
    return None


def _locals_of(frame: FrameType) -> dict[str, Any]:
    """The variables of a function. Python up to 3.12 keeps what was read beside the frame: whatever
    the function lets go later would stay in memory with it. But it is also what ``locals()`` gives
    the function, which may have kept that."""
    read = frame.f_locals
    found = dict(read)
    kept = sys.getrefcount(read) > _REFERENCES
    if frame.f_code.co_flags & CO_OPTIMIZED and type(read) is dict and not kept:
        read.clear()
    return found
