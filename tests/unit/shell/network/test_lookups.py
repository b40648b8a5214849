"""Names are looked up whatever the disk does."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from elasticd.shell.network import lookups, transfer
from tests.unit.shell.network.daemons import Run


def test_a_disk_that_hangs_keeps_no_name_from_being_looked_up(run: Run) -> None:
    async def main() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        go = threading.Event()
        most = min(32, (os.cpu_count() or 1) + 4)  # ThreadPoolExecutor's
        hung = [asyncio.create_task(asyncio.to_thread(go.wait, 10)) for _ in range(most)]
        await asyncio.sleep(0)  # they have taken all threads
        try:
            _, writer = await transfer.connect(f"localhost:{port}")
            await transfer.close(writer)
            assert not any(task.done() for task in hung)
        finally:
            go.set()
            await asyncio.gather(*hung)
            server.close()
            await server.wait_closed()

    run(main())


def test_an_address_is_looked_up_by_nobody(run: Run) -> None:
    async def main() -> None:
        assert await lookups.endpoints("10.0.0.1:7070") == [("10.0.0.1", 7070)]
        with pytest.raises(ValueError, match="host:port"):
            await lookups.endpoints("10.0.0.1")

    run(main())
