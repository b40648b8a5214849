"""Which addresses a daemon uses."""

from __future__ import annotations

import pytest

from elasticd.errors import OperationError, UsageError
from elasticd.shell.network.gate import is_loopback
from tests.unit.shell.network.daemons import (
    Daemon,
    Run,
    free_address,
    running,
    shake,
    until,
)


def test_what_is_not_loopback_needs_insecure(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a", own="0.0.0.0:1")
        with pytest.raises(UsageError, match=r"listen = '0\.0\.0\.0:1'.*--insecure"):
            await a.peers.start()
        b = Daemon("b", "192.0.2.1:7070")
        with pytest.raises(UsageError, match="peers = "):
            await b.peers.start()
        port = free_address().rpartition(":")[2]
        c = Daemon("c", own=f"0.0.0.0:{port}", insecure=True)
        async with running(c):
            pass
        d = Daemon("d")
        e = Daemon("e", own=d.address)
        async with running(d):
            with pytest.raises(OperationError, match="can't listen"):
                await e.peers.start()

    run(main())


def test_an_address_from_elsewhere_is_not_learned_without_insecure(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a")
        async with running(a):
            hello = {**a.peers.me.frame(), "node": "far", "address": "192.0.2.1:7070"}
            await shake(a.address, hello)
            assert a.peers._dialler.dials == {}
            await shake(a.address, {**hello, "address": "nowhere"})
            await until(lambda: a.peers.refusals.bad_frames)

    run(main())


def test_loopback() -> None:
    assert is_loopback("127.0.0.1") and is_loopback("127.9.9.9") and is_loopback("localhost")
    assert not is_loopback("0.0.0.0") and not is_loopback("node-1.local")
