"""What a node tells another that looks at it, as JSON in a bulk answer (docs/protocols.md §4)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from elasticd.core.words.bulk import OfPreflight
from elasticd.core.words.codec import from_plain, to_plain
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.namelessfile import file_of, filled
from elasticd.types import JobId, NodeId

MOST_BYTES = 1 << 16
T = TypeVar("T")


def file_with(answer: object) -> int:
    """A descriptor of an answer; the caller closes it."""
    return file_of(json.dumps(to_plain(answer)).encode())


async def fetched(
    neighbours: Neighbours, node: NodeId, wanted: OfPreflight, kind: Any, most: int = MOST_BYTES
) -> Any:
    """What another node tells: a ``kind``, of ``most`` bytes.

    Raises:
        OperationError: it can't be reached, refuses, or tells more.
        ProtocolError, ValueError: it tells something else.
    """
    data = await filled(lambda fd: neighbours.fetch(node, wanted, fd, most))
    return from_plain(kind, json.loads(data))


async def told_by(
    neighbours: Neighbours,
    node: NodeId,
    wanted: OfPreflight,
    kind: Any,
    own: Callable[[], Awaitable[T]],
    seconds: float,
    most: int = MOST_BYTES,
) -> T:
    """As :func:`fetched`, of any node: this one's is its ``own``.

    Raises:
        TimeoutError: it is not told within ``seconds``.
        OperationError, ProtocolError, ValueError: as there.
    """
    async with asyncio.timeout(seconds):
        if node == neighbours.me:
            return await own()
        answer: T = await fetched(neighbours, node, wanted, kind, most)
        return answer


async def in_time(asked: Iterable[Awaitable[T]], seconds: float) -> list[T]:
    """What comes of these within ``seconds``, in their order; what is late is given up. Raises what
    they raise."""
    tasks = [asyncio.ensure_future(each) for each in asked]
    if not tasks:
        return []
    done, late = await asyncio.wait(tasks, timeout=seconds)
    for each in late:
        each.cancel()
    return [each.result() for each in tasks if each in done]


def trained(trains: Callable[[], Sequence[JobId]]) -> str:
    """A job that has processes here, if there is one."""
    return next(iter(trains()), "")
