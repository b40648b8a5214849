"""A look at the disk comes before the end of a child that failed, and holds nobody else up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from elasticd.shell.assembly import endings
from elasticd.shell.assembly.endings import Endings
from elasticd.shell.children.server import Child
from tests.unit.shell.hungdisk import HungDisk

Run = Callable[[Coroutine[Any, Any, None]], None]
A, B, C = (cast(Child, name) for name in "ABC")


class Node:
    def __init__(self, error: OSError | None = None) -> None:
        self.told: list[Any] = []
        self.reaped: list[Child] = []
        self.disk = HungDisk()
        self.endings = Endings(
            Path("home"),
            lambda child, status: self.told.append((child, status)),
            self.told.append,
            self.reaped.append,
            self.disk.slow(lambda home: error),
        )

    async def told_of(self, count: int) -> None:
        while len(self.told) < count:  # noqa: ASYNC110  a heartbeat each
            await asyncio.sleep(0)


def test_the_loop_turns_while_the_disk_is_looked_at(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "PROBE_SECONDS", 60.0)  # it answers, however busy the machine is

    async def main() -> None:
        error = OSError(28, "No space left on device")
        node = Node(error)
        node.endings.add(A, 1)
        await node.disk.turned(node.told_of(2))
        assert node.told == [error, (A, 1)]

    run(main())


def test_ends_are_told_in_their_order(run: Run) -> None:
    async def main() -> None:
        node = Node()
        node.endings.add(A, 1)
        node.endings.add(B, 0)
        node.endings.add(C, None)
        assert node.told == [] and node.reaped == [A, B, C]
        await node.disk.turned(node.told_of(3))
        assert node.told == [(A, 1), (B, 0), (C, None)]

    run(main())


def test_who_was_killed_or_ended_well_waits_for_no_disk(run: Run) -> None:
    async def main() -> None:
        node = Node()
        for child, status in ((A, 0), (B, None), (C, -signal.SIGKILL)):
            node.endings.add(child, status)
        assert node.told == [(A, 0), (B, None), (C, -signal.SIGKILL)]
        assert not node.disk.came.is_set()

    run(main())


def test_a_disk_that_hangs_costs_one_thread_and_no_end(run: Run) -> None:
    async def main() -> None:
        node = Node(OSError(5, "Input/output error"))
        for child in (A, B, C):
            node.endings.add(child, 1)
        await node.told_of(3)  # though it still hangs
        assert node.told == [(A, 1), (B, 1), (C, 1)]
        node.disk.go.set()

    run(main())
