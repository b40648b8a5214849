"""What the loop asks for of a disk is done beside it: while a job trains, begins and ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from elasticd.core.words import effects as e
from elasticd.core.words.bulk import WantOutput
from elasticd.core.words.records import JobRecord
from elasticd.outputs import list_files
from elasticd.settings.job import JobSpec
from elasticd.shell.assembly.perform import Performers
from elasticd.shell.children import launches
from elasticd.shell.children.children import Children
from elasticd.shell.children.server import ROSTER_NAME, Child, ChildServer
from elasticd.shell.inorder import InOrder
from elasticd.shell.storage.marks import Marks
from elasticd.shell.storage.records import StableRecords
from elasticd.types import JobId, NodeId, Tag
from tests.unit.core.leading.bench import JOB, world_of
from tests.unit.shell.children.test_children import SPEC
from tests.unit.shell.hungdisk import HungDisk
from tests.unit.shell.loopdisk import disk_calls
from tests.unit.shell.storage import outputnet

Run = Callable[[Coroutine[Any, Any, None]], None]
TRAINER, REDUCER = 1, 2
ALLOWED = {
    ("open", ".log"): "the end of what an ended child has printed (RunningChild.last_words)",
}
"""Calls that stay in the loop, by what they do and the end of the path; and why."""


class Node:
    """Its children, and what is remembered of jobs, as a daemon has them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.came: asyncio.Queue[e.Event] = asyncio.Queue()
        self.server = ChildServer(home, self._said, self._ended)
        self.children = Children(
            home, ["127.0.0.1"], self.server, self._record, self.came.put_nowait
        )
        self.records = StableRecords(home, InOrder("marks"))
        rest = cast(Any, None)
        self.perform = Performers(rest, self.records, self.children, rest, rest, rest, rest, rest)
        self.children.files.work_folder(JOB).mkdir(parents=True)

    def _record(self, job: JobId) -> JobRecord:
        return JobRecord(job, 1, JobSpec.from_dict(SPEC).to_dict(), "digest", "running")

    def _said(self, child: Child, message: dict[str, Any], fds: list[int]) -> None:
        self.children.on_message(child, message, fds)

    def _ended(self, child: Child, status: int | None) -> None:
        self.children.reaped(child)
        self.children.on_exit(child, status)

    async def first(self, kind: type[e.Event]) -> e.Event:
        while not isinstance(event := await self.came.get(), kind):
            pass
        return event

    async def close(self) -> None:
        self.children.close()
        await self.server.close()
        self.records.close()


def reached(step: int) -> e.Reached:
    return e.Reached(JOB, Tag(3, NodeId("node-0"), "n"), step)


@pytest.mark.process
def test_no_call_of_the_disk_is_made_in_the_loop(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        node = Node(tmp_path)
        await node.server.start()
        world = world_of(NodeId("a"), NodeId("b"))
        with disk_calls(tmp_path) as calls:
            node.perform(e.StartTrainer(TRAINER, JOB, spare=True))
            node.perform(e.StartReducer(REDUCER))
            for _ in range(2):
                await node.first(e.ChildStarted)
            node.children.enter_world(e.EnterWorld(TRAINER, None, world, 0), tmp_path)
            node.perform(reached(1))
            await node.children._tasks.ended()
            await node.server.disk.flushed(10)
            listed = await asyncio.to_thread(roster, tmp_path)
            (log,) = {Path(each["log"]) for each in listed if each["spare"]}
            assert log.name.endswith("-trainer.log") and log.is_file(), "it is shown"
            for child in (TRAINER, REDUCER):
                node.perform(e.KillChild(child, "why"))
            for _ in range(2):
                await node.first(e.ChildExited)
        await node.close()
        left = [c for c in calls if not any(c[0] == a and c[1].endswith(b) for a, b in ALLOWED)]
        assert left == []
        assert roster(tmp_path) == []

    run(main())


def roster(home: Path) -> list[dict[str, Any]]:
    path = home / ROSTER_NAME
    return cast(list[dict[str, Any]], json.loads(path.read_text()) if path.exists() else [])


@pytest.mark.process
def test_one_that_is_not_wanted_any_more_before_it_runs_is_killed(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        node, disk = Node(tmp_path), HungDisk()
        monkeypatch.setattr(launches, "reducer", disk.slow(launches.reducer))
        node.children.start_reducer(e.StartReducer(REDUCER))

        async def unwanted() -> None:
            node.children.kill(e.KillChild(REDUCER, "no job needs a reducer"))

        await disk.beside(unwanted())
        ended = await node.first(e.ChildExited)
        assert isinstance(ended, e.ChildExited) and ended.status == -signal.SIGKILL
        await node.close()

    run(main())


@pytest.mark.process
def test_a_job_runs_here_from_when_its_trainer_is_asked_for(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        node, disk = Node(tmp_path), HungDisk()
        monkeypatch.setattr(launches, "trainer", disk.slow(launches.trainer))
        node.children.start_trainer(e.StartTrainer(TRAINER, JOB, spare=False))

        async def runs() -> bool:
            return node.children.runs(JOB)

        assert await disk.beside(runs())
        await node.first(e.ChildStarted)
        assert node.children.runs(JOB)
        await node.close()
        assert not node.children.runs(JOB)

    run(main())


@pytest.mark.process
def test_a_child_that_cannot_be_written_down_does_not_run(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        node = Node(tmp_path)
        (tmp_path / f"{ROSTER_NAME}.partial").mkdir()
        await node.server.start()
        node.children.start_reducer(e.StartReducer(REDUCER))
        ended = await node.first(e.ChildExited)
        assert isinstance(ended, e.ChildExited) and ended.status == -signal.SIGKILL
        assert "can't be written down" in ended.tail and ROSTER_NAME in ended.tail
        await node.close()

    run(main())


@pytest.mark.process
def test_a_daemon_that_ends_while_a_child_is_started_leaves_none(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        node, disk = Node(tmp_path), HungDisk()
        monkeypatch.setattr(launches, "reducer", disk.slow(launches.reducer))
        node.children.start_reducer(e.StartReducer(REDUCER))
        await disk.turned(node.close())
        assert node.server.children == () and roster(tmp_path) == []

    run(main())


def test_of_the_marks_that_a_slow_disk_keeps_the_newest_is_written(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        disk, order = HungDisk(), InOrder("marks")
        monkeypatch.setattr(os, "open", disk.slow(os.open))
        marks = Marks(tmp_path / "reached", order)
        marks.write(reached(1))

        async def more() -> None:
            for step in range(2, 20_000):
                marks.write(reached(step))

        await disk.beside(more())
        await order.flushed(10)
        monkeypatch.undo()
        assert Marks(tmp_path / "reached").read({JOB}) == (reached(19_999),)

    run(main())


def test_the_loop_makes_no_file_of_what_another_node_has_written(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        net = outputnet.Net(tmp_path)
        net.nodes[outputnet.A].write(out="text")
        (file,) = list_files(net.nodes[outputnet.A].output).files
        wanted, target = WantOutput(outputnet.JOB, "out"), tmp_path / "new" / "out"
        fetch = partial(net.nodes[outputnet.B].outputs.fetch, outputnet.A, wanted, file)
        with disk_calls(tmp_path) as calls:
            assert await fetch(target)
        assert target.read_text() == "text" and calls == []

    run(main())


def test_the_loop_makes_no_file_of_what_main_before_has_written(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        net = outputnet.Net(tmp_path)
        new, members = net.nodes[outputnet.B], (outputnet.B, outputnet.C)
        net.nodes[outputnet.A].write(out="text")
        net.was = net.world
        with disk_calls(tmp_path / outputnet.B) as calls:
            await new.keeper.enters(outputnet.JOB, 2, members)
            await new.keeper._tasks.ended()
        assert new.texts() == {"out": "text"} and calls == []

    run(main())
