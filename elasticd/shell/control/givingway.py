"""A process that measures something, and ends where that would be in the way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from elasticd.shell.children.trial import tried

_LOOK_SECONDS = 0.5
T = TypeVar("T")


async def tried_aside(
    command: Sequence[str],
    variables: Mapping[str, str],
    folder: Path,
    late: float,
    in_the_way: Callable[[], object],
) -> bytes:
    """What the command prints, as by :func:`tried`, and as :func:`given_way`.

    Raises:
        OperationError: as :func:`tried`.
    """
    return await given_way(lambda stop: tried(command, variables, folder, late, stop), in_the_way)


async def given_way(work: Callable[[threading.Event], T], in_the_way: Callable[[], object]) -> T:
    """What ``work`` returns, in a thread. It is told to stop as soon as ``in_the_way`` says
    something, and where the caller is cancelled; it has ended then. Raises what it raises."""
    stop = threading.Event()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        while not running.done():
            await asyncio.wait({running}, timeout=_LOOK_SECONDS)
            if in_the_way():
                stop.set()
    finally:
        stop.set()
        await asyncio.wait({running})
        # So that nobody misses it.
        error = None if running.cancelled() else running.exception()
    if error is not None:
        raise error
    return running.result()
