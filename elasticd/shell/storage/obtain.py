"""The state of a trainer, or the updates that lead to it, from the nodes that hold it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

from elasticd.core.words.bulk import WantState
from elasticd.core.words.records import Wanted
from elasticd.errors import ElasticdError, OperationError
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.namelessfile import nameless_memory, rewind
from elasticd.types import JobId, NodeId

_MOST_PARTS = 4
"""A state is taken from at most so many holders at once."""


async def obtain(
    neighbours: Neighbours,
    job: JobId,
    wanted: Wanted,
    memory: Callable[[], int] = nameless_memory,
) -> list[int]:
    """Descriptors of nameless files that together are a state, or the updates that lead to it: a
    part from each holder, all at once. Of a holder that fails, another one gives the part.
    ``memory`` makes each.

    Raises:
        OperationError: nobody has some part.
    """
    point, since = wanted.point, wanted.since.stamp if wanted.since is not None else None
    parts = 1 if wanted.since is not None else min(len(wanted.holders), _MOST_PARTS)
    found = await asyncio.gather(
        *(
            _one_of(
                neighbours,
                wanted.holders[part:] + wanted.holders[:part],
                WantState(job, point.step, point.stamp, since, part, parts),
                memory,
            )
            for part in range(parts)
        ),
        return_exceptions=True,
    )
    fds = [each for each in found if isinstance(each, int)]
    for error in found:
        if isinstance(error, BaseException):
            for fd in fds:
                os.close(fd)
            raise error
    return fds


async def _one_of(
    neighbours: Neighbours,
    holders: Sequence[NodeId],
    wanted: WantState,
    memory: Callable[[], int],
) -> int:
    """What the first of ``holders`` that has it answers, in a nameless file."""
    reasons = []
    for node in holders:
        fd = memory()
        try:
            await neighbours.fetch(node, wanted, fd)
        except (ElasticdError, OSError) as error:
            os.close(fd)
            reasons.append(f"{node}: {error}")
        except BaseException:
            os.close(fd)
            raise
        else:
            rewind(fd)
            return fd
    raise OperationError("; ".join(reasons))
