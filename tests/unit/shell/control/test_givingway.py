"""A process that measures something ends where it would be in the way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.errors import OperationError
from elasticd.shell.control.givingway import tried_aside

HANGS = ("/bin/sh", "-c", "exec 3> lives; echo $$ > pid; sleep 1000 & wait")


@contextlib.contextmanager
def all_end(folder: Path) -> Iterator[None]:
    """Behind it all have ended that have begun in it: then nobody can write to ``lives``."""
    os.mkfifo(folder / "lives")
    reader = os.open(folder / "lives", os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield
        assert select.select([reader], [], [], 20)[0] and os.read(reader, 1) == b""
    finally:
        os.close(reader)


def started(folder: Path) -> bool:
    return (folder / "pid").exists() and bool((folder / "pid").read_text())


def test_what_is_printed_comes_back(tmp_path: Path) -> None:
    command = ("/bin/sh", "-c", "echo hello")
    assert asyncio.run(tried_aside(command, os.environ, tmp_path, 20.0, str)) == b"hello\n"


def test_it_ends_with_all_that_it_has_started_once_it_is_in_the_way(tmp_path: Path) -> None:
    with all_end(tmp_path), pytest.raises(OperationError, match="it was stopped"):
        asyncio.run(
            tried_aside(HANGS, os.environ, tmp_path, 600.0, lambda: started(tmp_path) and "a job")
        )


def test_it_ends_where_nobody_waits_for_it(tmp_path: Path) -> None:
    async def cancelled() -> None:
        runs = asyncio.Event()

        def look() -> None:
            if started(tmp_path):
                runs.set()

        work = asyncio.ensure_future(tried_aside(HANGS, os.environ, tmp_path, 600.0, look))
        await runs.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    with all_end(tmp_path):
        asyncio.run(cancelled())


def test_one_that_hangs_is_ended(tmp_path: Path) -> None:
    with (
        all_end(tmp_path),
        pytest.raises(OperationError, match="hangs: it has not ended in 0"),
    ):
        asyncio.run(tried_aside(HANGS, os.environ, tmp_path, 0.2, str))
