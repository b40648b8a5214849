"""Which addresses a daemon uses."""

from __future__ import annotations

import pytest

from elasticd.errors import OperationError
from tests.ports import free_address
from tests.unit.shell.network.daemons import (
    Daemon,
    Run,
    running,
    shake,
    until,
)


def test_an_address_that_is_taken_is_told(run: Run) -> None:
    async def main() -> None:
        port = free_address().rpartition(":")[2]
        c = Daemon("c", own=f"0.0.0.0:{port}")
        async with running(c):
            pass
        d = Daemon("d")
        e = Daemon("e", own=d.address)
        async with running(d):
            with pytest.raises(OperationError, match=r"can't listen on .*in use"):
                await e.peers.start()

    run(main())


def test_only_addresses_are_learned(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a")
        async with running(a):
            hello = {**a.peers.me.frame(), "node": "far", "address": "127.0.0.1:9"}
            await shake(a.address, hello)
            assert list(a.peers._dialler.dials) == ["127.0.0.1:9"]
            await shake(a.address, {**hello, "address": "nowhere"})
            await until(lambda: a.peers.refusals.bad_frames)

    run(main())
