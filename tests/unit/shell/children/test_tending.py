"""Logs are rotated and noted beside other work, and a spare's log keeps its name meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

from elasticd.shell.children.children import Children
from elasticd.shell.children.server import Child, ChildServer
from elasticd.supervision.logs import Dropping, Rotated, RotatedLog, unseen
from elasticd.supervision.process import OwnProcess
from elasticd.supervision.roster import ChildEntry
from elasticd.types import JobId
from tests.unit.shell.children.test_children import Process
from tests.unit.shell.hungdisk import HungDisk

Run = Callable[[Coroutine[Any, Any, None]], None]
JOB = JobId("job-1")


class SlowLog(RotatedLog):
    """On a disk that hangs."""

    def __init__(self, path: Path, disk: HungDisk) -> None:
        super().__init__(path, limit_bytes=3)
        self.disk = disk

    def rotate(self, dropping: Dropping = unseen) -> Rotated | None:
        self.disk.wait()
        return super().rotate(dropping)


class Node:
    """With one trainer, which was started as a spare."""

    def __init__(self, home: Path) -> None:
        server = ChildServer(home, lambda *_: None, lambda *_: None)
        self.children = Children(home, ["127.0.0.1"], server, cast(Any, None), lambda _: None)
        self.path = home / "logs" / JOB / "0000000000001-spare.log"
        self.path.parent.mkdir(parents=True)
        self.path.write_text("printed\n")
        entry = ChildEntry(os.getpid(), 0.0, "trainer", "nonce", JOB, True, str(self.path))
        child = Child(entry, cast(OwnProcess, Process()))
        self.children.adopt([child])
        (self.one,) = self.children._running.values()
        self.disk = HungDisk()
        self.one.log = SlowLog(self.path, self.disk)


def test_the_loop_turns_while_a_log_is_rotated(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        node = Node(tmp_path)
        await node.disk.turned(node.children.tend_logs_once())

    run(main())
    log = tmp_path / "logs" / JOB / "0000000000001-spare.log"
    assert log.read_text() == ""
    assert log.with_name(f"{log.name}.1").read_text() == "printed\n"


def test_the_log_of_a_spare_that_is_promoted_meanwhile_is_shown_afterwards(
    tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        node = Node(tmp_path)
        tending = asyncio.create_task(node.children.tend_logs_once())
        while not node.disk.came.is_set():  # noqa: ASYNC110  a heartbeat each
            await asyncio.sleep(0)
        showing = asyncio.create_task(node.children._show_log(node.one))
        assert node.path.exists()
        node.disk.go.set()
        await tending
        await showing
        assert node.one.log.path.name == "0000000000001-trainer.log"
        assert node.one.log.path.exists()

    run(main())


def test_the_log_of_a_child_that_has_ended_is_rotated_once_more(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        node = Node(tmp_path)
        node.disk.go.set()
        await node.children.tend_logs_once()
        node.path.write_text("its last words\n")
        node.children.on_exit(node.one.child, 0)
        await node.children.tend_logs_once()
        assert node.path.read_text() == ""
        node.path.write_text("somebody else's\n")
        await node.children.tend_logs_once()
        assert node.path.read_text() == "somebody else's\n", "nobody tends it any more"

    run(main())
