"""The other nodes, as whoever moves bulk data sees them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from elasticd.core.words.bulk import WANTS, Relay, Want
from elasticd.errors import OperationError
from elasticd.types import NodeId

Fetch = Callable[[str, dict[str, Any], int], Awaitable[int]]
"""Fetch what a request names from the daemon at an address into a descriptor; returns the bytes."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """This node and how the others are reached."""

    me: NodeId
    transfer: Fetch
    address_of: Callable[[NodeId], str | None]
    living: Callable[[], Iterable[NodeId]]
    """The nodes that are not known to be dead."""
    relay: Callable[[NodeId], NodeId | None] = lambda node: None
    """Who hears a node whose own link is dead now."""

    def reaches(self, node: NodeId) -> bool:
        """Whether it answers now, over its link or through a third node."""
        return self._way(node) is not None

    def connected(self) -> list[NodeId]:
        """The nodes that answer now, without this one."""
        return [node for node in self.living() if node != self.me and self.reaches(node)]

    async def fetch(
        self, node: NodeId, wanted: Want, sink: int, limit_bytes: int | None = None
    ) -> int:
        """Write what is ``wanted`` of a node to a descriptor; returns the bytes. They come through
        a third node where the link is dead and the node isn't.

        Raises:
            OperationError: it can't be reached, refuses, goes away, or has more than
                ``limit_bytes``.
        """
        way = self._way(node)
        if way is None:
            raise OperationError(f"{node} is not connected")
        asked, address = way
        if asked != node:
            wanted = Relay(node, WANTS.encode(wanted))
        limit = () if limit_bytes is None else (limit_bytes,)
        return await self.transfer(address, WANTS.encode(wanted), sink, *limit)

    def _way(self, node: NodeId) -> tuple[NodeId, str] | None:
        """Who is to be asked for what it has, and where that one answers."""
        for asked in (self.relay(node), node):
            if asked is not None and (address := self.address_of(asked)) is not None:
                return asked, address
        return None
