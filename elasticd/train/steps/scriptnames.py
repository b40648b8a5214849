"""The variables of the script: those of its module, and of the functions that it is in."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from inspect import CO_OPTIMIZED
from types import CodeType, FrameType, FunctionType
from typing import Any

_LIBRARY = "elasticd"
_MOST_FRAMES = 30
"""Between the loop and the library, as where it is ``for step in tqdm(run)``."""

_ASSIGNING = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")
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
    # A copy first: threads of the script may add names meanwhile.
    module = dict(here.f_globals)
    found = {name: value for name, value in module.items() if not name.startswith("__")}
    inner: dict[str, Any] = {}
    for outer in _functions(here):
        # What is from around a function is its maker's, whom we come to if it runs still.
        around = set(outer.f_code.co_freevars)
        inner = {n: v for n, v in _locals_of(outer).items() if n not in around} | inner
    return found | inner


def assigned_later(frame: FrameType | None, home: dict[str, Any] | None = None) -> set[str]:
    """Those of :func:`names` that the script assigns behind where it is now, as a loop's body does
    where ``frame`` begins the loop; and those that a function assigns which isn't their own."""
    nearest = outside(frame)
    here = _within(nearest, home) or nearest
    if here is None:
        return set()
    frames = [*_functions(here)]
    outer = frames[-1].f_back if frames else here
    if outer is not None and outer.f_globals is here.f_globals:  # the module itself
        frames.append(outer)
    found: set[str] = set()
    for one in frames:
        found |= _assigned(one.f_code, one.f_lasti) | _assigned_within(one.f_code, "STORE_DEREF")
        found |= _assigned_within(one.f_code, "STORE_GLOBAL")
    for value in list(here.f_globals.values()):
        if type(value) is FunctionType and value.__globals__ is here.f_globals:
            found |= _assigned_within(value.__code__, "STORE_GLOBAL")
    return found


def _functions(here: FrameType | None) -> Iterator[FrameType]:
    """The frame of a function and those of what has called it, in its module."""
    module = None if here is None else here.f_globals
    while here is not None and here.f_globals is module and here.f_code.co_name != "<module>":
        yield here
        here = here.f_back


def _assigned(code: CodeType, behind: int) -> set[str]:
    found: set[str] = set()
    for made in dis.get_instructions(code):
        if made.offset > behind and made.opname.startswith(_ASSIGNING):
            # Two names of one instruction, from Python 3.13 on: the second may only be read.
            found |= {made.argval} if isinstance(made.argval, str) else set(made.argval)
    return found


def _assigned_within(code: CodeType, how: str) -> set[str]:
    """Names that aren't its own, in ``code`` and in functions in it."""
    found = {
        made.argval
        for made in dis.get_instructions(code)
        if made.opname == how and made.argval not in code.co_cellvars
    }
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _assigned_within(constant, how)
    return found


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
