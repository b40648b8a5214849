"""The other nodes, as whoever moves bulk data sees them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

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
    connected: Callable[[], list[NodeId]]
    """The nodes that answer now, without this one."""

    async def fetch(self, node: NodeId, request: Mapping[str, Any], sink: int) -> int:
        """Write what ``node`` has for ``request`` to a descriptor; returns the bytes.

        Raises:
            OperationError: it can't be reached, refuses or goes away.
        """
        address = self.address_of(node)
        if address is None:
            raise OperationError(f"{node} is not connected")
        return await self.transfer(address, dict(request), sink)
