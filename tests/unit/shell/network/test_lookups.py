"""Names are looked up whatever the disk does."""

from __future__ import annotations

import asyncio
import os
import socket
import threading

import pytest

from elasticd.shell.network import lookups
from elasticd.shell.network.binding import bound
from tests.ports import free_ports, names_of_a_mac
from tests.unit.shell.network.daemons import Run


def test_a_disk_that_hangs_keeps_no_name_from_being_looked_up(run: Run) -> None:
    async def main() -> None:
        go = threading.Event()
        most = min(32, (os.cpu_count() or 1) + 4)  # ThreadPoolExecutor's
        hung = [asyncio.create_task(asyncio.to_thread(go.wait, 10)) for _ in range(most)]
        await asyncio.sleep(0)  # they have taken all threads
        try:
            with socket.create_server(("127.0.0.1", 0)) as server:
                opened = await lookups.connection(f"localhost:{server.getsockname()[1]}")
                opened.close()
            assert not any(task.done() for task in hung)
        finally:
            go.set()
            await asyncio.gather(*hung)

    run(main())


def test_an_address_is_looked_up_by_nobody(run: Run) -> None:
    async def main() -> None:
        assert await lookups.endpoints("10.0.0.1:7070") == [("10.0.0.1", 7070)]
        with pytest.raises(ValueError, match="host:port"):
            await lookups.endpoints("10.0.0.1")

    run(main())


def test_a_name_that_cannot_be_asked_for_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(host: str, *_: object, **__: object) -> None:
        raise UnicodeError("label too long")

    monkeypatch.setattr(socket, "getaddrinfo", refused)
    with pytest.raises(socket.gaierror, match=r"mac-1\.local: label too long"):
        lookups.looked_up("mac-1.local:7070")


def test_a_name_stands_for_its_addresses_of_ipv4_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of IPv6 is good for nothing without its interface, and its failure tells nothing."""
    monkeypatch.setattr(socket, "getaddrinfo", names_of_a_mac("127.0.0.1"))
    (port,) = free_ports(1)
    address = f"mac-1.local:{port}"

    async def main() -> None:
        assert await lookups.endpoints(address) == [("127.0.0.1", port)]
        with pytest.raises(ConnectionRefusedError):
            await lookups.connection(address)
        (one,) = await bound(address)
        with one:
            assert one.getsockname() == ("127.0.0.1", port)

    run(main())
