"""A process that measures something, and ends where that would be in the way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from elasticd.shell.children.trial import tried

_LOOK_SECONDS = 0.5


async def tried_aside(
    command: Sequence[str],
    variables: Mapping[str, str],
    folder: Path,
    late: float,
    in_the_way: Callable[[], object],
) -> bytes:
    """What the command prints, as by :func:`tried`, in a thread. It is stopped as soon as
    ``in_the_way`` says something, and where the caller is cancelled; it has ended then.

    Raises:
        OperationError: as :func:`tried`.
    """
    stop = threading.Event()
    work = asyncio.ensure_future(asyncio.to_thread(tried, command, variables, folder, late, stop))
    try:
        while not work.done():
            await asyncio.wait({work}, timeout=_LOOK_SECONDS)
            if in_the_way():
                stop.set()
    finally:
        stop.set()
        await asyncio.wait({work})
        error = None if work.cancelled() else work.exception()  # so that nobody misses it
    if error is not None:
        raise error
    return work.result()
