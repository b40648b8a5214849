"""What is fetched from other daemons, and what they fetch from this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from elasticd.core.words.bulk import WANTS, Relay
from elasticd.core.words.connections import FETCH
from elasticd.errors import OperationError, ProtocolError
from elasticd.shell.network import transfer
from elasticd.shell.network.gate import Gate
from elasticd.shell.network.sealed import Sealed
from elasticd.shell.network.transfer import Serve
from elasticd.types import NodeId

BLANK_BYTES = 4 << 20
"""What is transferred to measure an address of a peer that has several."""

AddressOf = Callable[[NodeId], str | None]
"""Where a connected node answers; None for others."""


@dataclass(frozen=True, slots=True)
class Bulk:
    """Short connections of their own, one for each fetch."""

    gate: Gate
    serve: Serve
    address_of: AddressOf

    async def fetch(
        self, address: str, request: Mapping[str, Any], fd: int, limit_bytes: int | None = None
    ) -> int:
        """Fetch what ``request`` names from the daemon at ``address`` into ``fd``.

        Returns the number of bytes.

        Raises:
            OperationError: it refuses, goes away, or sends nothing for transfer.IDLE_SECONDS.
        """
        self.gate.require_link(address)
        return await transfer.fetch(address, request, fd, self.gate.credentials, limit_bytes)

    async def answer(self, request: dict[str, Any], sink: Sealed) -> None:
        """Serve what another daemon fetches; the caller closes its connection.

        Raises:
            ProtocolError: it wants what makes no sense.
            OSError: as transfer.answer.
        """
        if FETCH.decode(request).what == Relay.kind:
            await self._relay(request, sink)
        else:
            await transfer.answer(request, sink, self.serve)

    async def _relay(self, request: dict[str, Any], sink: Sealed) -> None:
        """Fetch for somebody whose own link to that node is dead."""
        asked = WANTS.decode(request)
        if not isinstance(asked, Relay) or asked.request.get("what") == Relay.kind:
            raise ProtocolError("it wants nothing that can be passed on")
        address = self.address_of(asked.node)
        try:
            if address is None:
                raise OperationError(f"{asked.node} is not connected")
            self.gate.require_link(address)
        except OperationError as error:
            await transfer.refuse(sink, error)
        else:
            await transfer.relay(address, asked.request, sink, self.gate.credentials)
