"""How bulk data is fetched: over the link or, where that is dead, through a third node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from elasticd.core.words.bulk import WantBlank
from elasticd.errors import OperationError
from elasticd.shell.network.neighbours import Neighbours
from elasticd.types import NodeId

ME, NEAR, FAR = NodeId("me"), NodeId("near"), NodeId("far")


@pytest.mark.parametrize(
    ("addresses", "via", "asked"),
    [
        ({FAR: "far:1"}, None, ("far:1", {"what": "blank"})),
        (
            {NEAR: "near:1", FAR: "far:1"},
            NEAR,
            ("near:1", {"what": "relay", "node": FAR, "request": {"what": "blank"}}),
        ),
        (
            {NEAR: "near:1"},
            NEAR,
            ("near:1", {"what": "relay", "node": FAR, "request": {"what": "blank"}}),
        ),
        ({FAR: "far:1"}, NEAR, ("far:1", {"what": "blank"})),
        ({NEAR: "near:1"}, None, None),
    ],
    ids=["link", "dead", "gone", "relay gone", "nobody"],
)
def test_the_way(
    addresses: dict[NodeId, str], via: NodeId | None, asked: tuple[str, dict[str, Any]] | None
) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    async def transfer(address: str, request: dict[str, Any], sink: int) -> int:
        seen.append((address, request))
        return 7

    found = Neighbours(ME, transfer, addresses.get, lambda: [FAR, ME, NEAR], lambda node: via)
    fetched = found.fetch(FAR, WantBlank(), -1)
    if asked is None:
        assert FAR not in found.connected()
        with pytest.raises(OperationError, match="far is not connected"):
            asyncio.run(fetched)
    else:
        assert FAR in found.connected() and ME not in found.connected()
        assert asyncio.run(fetched) == 7
        assert seen == [asked]
