"""The addresses of a peer that has several: pinged, judged and measured."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog

from elasticd.core.words.bulk import WANTS, WantBlank
from elasticd.core.words.connections import CONNECTION, Ping
from elasticd.errors import OperationError
from elasticd.ipc.frames import encode
from elasticd.recovery.links import too_slow
from elasticd.shell.network.bulk import BLANK_BYTES
from elasticd.shell.network.table import PeerTable
from elasticd.shell.network.wires import PING_SECONDS, SELDOM_PING_SECONDS, PeerRun

MEASUREMENTS = 3
AGAIN_SECONDS = (5.0, 10.0, 30.0, 60.0, 300.0)
"""Waits before an address that seems too slow to be used is measured again, each time once."""

log = structlog.get_logger(__name__)

Fetch = Callable[[str, dict[str, Any], int, int], Awaitable[int]]
"""Fetch from an address into a descriptor so many bytes at most; returns how many came."""


async def mind(table: PeerTable) -> None:
    """Ping every address, judge it by its answers, and move where another one is better."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        due += PING_SECONDS
        await asyncio.sleep(max(0.0, due - loop.time()))
        now = loop.time()
        late, due = now - due > PING_SECONDS, max(due, now - PING_SECONDS)
        for peer in list(table.runs.values()):
            _judge(peer, now, late)
            table.choose(peer)


def _judge(peer: PeerRun, now: float, late: bool) -> None:
    peer.settle(now)
    every = PING_SECONDS if len(peer.addresses) > 1 else SELDOM_PING_SECONDS
    wires = list(peer.wires.values())
    for wire in wires:
        if late:
            wire.forgive()
        elif len(wires) > 1:
            wire.judge(now, wires)
        if peer.announced and wire.due(now, every):
            wire.writer.write(encode(CONNECTION.encode(Ping(wire.ping(now)))))


async def measure(
    peer: PeerRun, fetch: Fetch, waits_seconds: Sequence[float] = AGAIN_SECONDS
) -> None:
    """What each address carries that was not measured yet, by short transfers.

    An address that seems too slow for its place is measured again, after each of
    ``waits_seconds``: the machine may have been busy, and the ring would go past that address until
    the daemons are started again.
    """
    # In turns, and the best counts: the machine may have been busy during one.
    new = tuple(each for each in peer.addresses if each not in peer.speeds)
    await _measure_each(peer, fetch, new * MEASUREMENTS)
    for seconds in waits_seconds:
        slow = too_slow([(address, peer.speeds.get(address, 0.0)) for address in peer.addresses])
        if not slow:
            return
        try:
            await asyncio.wait_for(peer.gone.wait(), seconds)
        except TimeoutError:
            await _measure_each(peer, fetch, slow)
        else:
            return


async def _measure_each(peer: PeerRun, fetch: Fetch, addresses: Sequence[str]) -> None:
    loop = asyncio.get_running_loop()
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        for address in addresses:
            began = loop.time()
            try:
                size = await fetch(address, WANTS.encode(WantBlank()), sink, BLANK_BYTES)
            except OperationError as error:
                log.info("address could not be measured", address=address, reason=str(error))
                continue
            speed = size / max(loop.time() - began, 1e-6)
            peer.speeds[address] = max(speed, peer.speeds.get(address, 0.0))
    finally:
        os.close(sink)
