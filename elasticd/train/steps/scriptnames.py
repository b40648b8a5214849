"""The variables of the script: those of its module, and of the functions that it is in."""

from __future__ import annotations

from types import FrameType
from typing import Any

_LIBRARY = "elasticd"
_MOST_FRAMES = 30
"""Between the loop and the library, as where it is ``for step in tqdm(run)``."""


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
    here = nearest = outside(frame)
    for _ in range(_MOST_FRAMES):
        if here is None or home is None or here.f_globals is home:
            break
        here = here.f_back
    here = nearest if here is None or here.f_globals is not (home or here.f_globals) else here
    if here is None:
        return dict(home or {})
    found = {name: value for name, value in here.f_globals.items() if not name.startswith("__")}
    module = here.f_globals
    inner: dict[str, Any] = {}
    while here is not None and here.f_globals is module and here.f_code.co_name != "<module>":
        # What is from around a function is its maker's, whom we come to if it runs still.
        around = set(here.f_code.co_freevars)
        inner = {n: v for n, v in here.f_locals.items() if n not in around} | inner
        here = here.f_back
    return found | inner
