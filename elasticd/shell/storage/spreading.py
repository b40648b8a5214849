"""Has some of several nodes do something, and goes on to others where one fails or is slow."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from elasticd.errors import ElasticdError
from elasticd.types import NodeId

SPREAD_SECONDS = 10.0
"""Somebody waits in front of a screen for it."""
SLOW_SECONDS = 3.0
"""After so long without news one more node is asked."""


@dataclass(frozen=True, slots=True)
class Spread:
    done: tuple[NodeId, ...]
    failed: dict[NodeId, str]
    """Why not the others that were asked."""


async def spread(
    ask: Callable[[NodeId], Awaitable[object]],
    nodes: Sequence[NodeId],
    count: int,
    seconds: float = SPREAD_SECONDS,
    slow_seconds: float = SLOW_SECONDS,
) -> Spread:
    """Ask the first of ``nodes`` until ``count`` have done it, or none is left, or ``seconds`` have
    passed. ``ask`` raises an ElasticdError or OSError where it fails."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    rest, done, failed, late = deque(nodes), list[NodeId](), dict[NodeId, str](), 0
    asked: dict[asyncio.Future[object], NodeId] = {}
    try:
        while len(done) < count:
            while rest and len(asked) < count - len(done) + late:
                node = rest.popleft()
                asked[asyncio.ensure_future(ask(node))] = node
            left = ends - loop.time()
            if not asked or left <= 0:
                break
            patience = min(left, slow_seconds) if rest else left
            over, _ = await asyncio.wait(
                asked, timeout=patience, return_when=asyncio.FIRST_COMPLETED
            )
            late += not over
            for task in over:
                node = asked.pop(task)
                try:
                    task.result()
                except (ElasticdError, OSError) as error:
                    failed[node] = str(error)
                else:
                    done.append(node)
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    if len(done) < count:
        failed |= dict.fromkeys(asked.values(), f"it was not done within {seconds:g} s")
    return Spread(tuple(sorted(done)), failed)
