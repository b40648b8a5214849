"""The loop does not wait for the disk that keeps the events, and loses none."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from threading import get_ident
from typing import Any, NoReturn

import pytest

from elasticd.checkpoints.sequential import write_all
from elasticd.shell.inorder import InOrder
from elasticd.shell.storage import eventfiles, eventform, eventlacking, eventshelf, keptevents
from elasticd.shell.storage.eventlog import EventLog
from elasticd.shell.storage.eventreading import EventReading
from tests.unit.shell.hungdisk import HungDisk
from tests.unit.shell.storage.test_eventlog import JOB, event, history, numbers

Run = Callable[[Coroutine[Any, Any, None]], None]


def _fails(error: OSError) -> NoReturn:
    raise error


def test_the_loop_never_waits_for_the_disk(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is told of whichever job, and whatever is asked meanwhile."""
    monkeypatch.setattr(keptevents, "KEPT_EVENTS", 10)
    log = EventLog(tmp_path, "a/1")
    for number in range(1, 4):
        log.write(event(number, kind="job_failed"))

    async def main() -> None:
        disk, order = HungDisk(), InOrder("events", _fails)
        log = EventLog(tmp_path, "a/2", order)
        assert [*log._kept._shelves] == [JOB]
        for name in ("write_all", "write_whole"):
            monkeypatch.setattr(eventfiles, name, disk.slow(getattr(eventfiles, name)))
        for name in ("sound_in", "read_sound", "frames"):
            monkeypatch.setattr(eventform, name, disk.slow(getattr(eventform, name)))
        log.add({"origin": "c/1", "number": 5, "kind": "_floor"})
        for number in range(4, 30):
            log.write(event(number, "live"))
        for number in (4, 5):
            log.write(event(number))  # one that has ended: what it has lies on the disk

        async def told() -> list[int]:
            reading = EventReading(log)
            assert [each["n"] for each in await reading.notable(JOB)] == []
            return [each["n"] async for each in reading.so_far(JOB)]

        assert await disk.turned(told()) == [1, 2, 3, 4, 5]
        await order.flushed(10)
        assert numbers(log) == [1, 2, 3, 4, 5]
        assert log.vector() == {"a/1": 3, "a/2": 28, "c/1": 5}
        log.write(event(6))
        await order.flushed(10)
        assert numbers(log) == [1, 2, 3, 4, 5, 6]

    run(main())
    again = EventLog(tmp_path, "a/3")
    assert numbers(again) == [1, 2, 3, 4, 5, 6] and again.vector()["a/2"] == 29


def test_what_another_node_lacks_it_gets_while_the_disk_is_behind(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventLog(tmp_path, "a/1")
    log.write(event(1, kind="job_failed"))

    async def main() -> None:
        disk, order = HungDisk(), InOrder("events", _fails)
        log = EventLog(tmp_path, "a/2", order)
        monkeypatch.setattr(eventfiles, "write_all", disk.slow(write_all))
        log.write(event(2))
        log.write(event(3, "live"))

        async def lacked() -> list[int]:
            return sorted([each["n"] async for batch in log.missing({}) for each in batch])

        assert await disk.beside(lacked()) == [1, 2, 3]

    run(main())


def test_a_full_disk_is_told_of_once_and_nothing_is_written_behind_a_gap(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        told: asyncio.Queue[OSError] = asyncio.Queue()
        order = InOrder("events", told.put_nowait)
        log = EventLog(tmp_path, "a/1", order)
        log.write(event(1))
        await order.flushed(10)
        space = [False, True, True]

        def limited(fd: int, data: bytes) -> None:
            if not space.pop(0):
                raise OSError(errno.ENOSPC, "full")
            write_all(fd, data)

        monkeypatch.setattr(eventfiles, "write_all", limited)
        for number in (2, 3):
            log.write(event(number))
        error = await told.get()
        assert error.errno == errno.ENOSPC and str(JOB) in str(error.filename)
        await order.flushed(10)
        assert told.empty()

    run(main())
    assert numbers(EventLog(tmp_path, "a/2")) == [1]


def test_a_disk_that_hangs_keeps_no_daemon_from_ending(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        disk, order = HungDisk(), InOrder("events", _fails)
        monkeypatch.setattr(eventfiles, "write_all", disk.slow(write_all))
        EventLog(tmp_path, "a/1", order).write(event(1))
        await order.flushed(0.01)
        disk.go.set()
        await order.flushed(10)

    run(main())
    assert numbers(EventLog(tmp_path, "a/2")) == [1]


def test_a_defect_in_the_thread_is_no_secret(tmp_path: Path) -> None:
    async def main() -> None:
        loop, seen = asyncio.get_running_loop(), asyncio.Queue[Any]()
        loop.set_exception_handler(lambda _, context: seen.put_nowait(context["exception"]))
        order = InOrder("events", _fails)
        order.do(lambda: dict[str, int]()["x"])
        assert isinstance(await seen.get(), KeyError)

    asyncio.run(main())


def test_where_each_work_stands_for_itself_the_next_is_done_after_a_failure() -> None:
    """Else no child would be started any more, and whoever asks for an outcome would wait for
    ever."""

    async def main() -> None:
        loop, seen = asyncio.get_running_loop(), asyncio.Queue[Any]()
        loop.set_exception_handler(lambda _, context: seen.put_nowait(context["exception"]))
        order = InOrder("children")
        for failing in (lambda: dict[str, int]()["x"], lambda: os.stat("/nowhere")):
            order.do(failing)
        assert await asyncio.wait_for(order.done(lambda: 7), 10) == 7
        assert [type(await seen.get()) for _ in "ab"] == [KeyError, FileNotFoundError]

    asyncio.run(main())


def test_a_node_that_lacks_years_is_told_them_at_the_cost_of_what_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks again behind every few batches. What tells where its events are was read each time,
    of all jobs, in the loop's thread: a home of two years took minutes of it."""
    jobs, origins, each = 60, 10, 30
    log = EventLog(tmp_path / "a", "a/1")
    for number in range(jobs):
        origin = f"n/{number % origins}"
        for place in range(each):
            kind = "job_finished" if place == each - 1 else "test"
            told = event(number * each + place, f"job-{number}", kind=kind)
            log.add({**told, "origin": origin, "number": number // origins * each + place + 1})
    log, other = EventLog(tmp_path / "a", "a/2"), EventLog(tmp_path / "b", "b/1")
    monkeypatch.setattr(eventlacking, "BATCH_EVENTS", 20)
    looked: list[int] = []
    unpacked = eventshelf.unpacked

    def noted(packed: bytes) -> Any:
        looked.append(get_ident())
        return unpacked(packed)

    monkeypatch.setattr(eventshelf, "unpacked", noted)

    async def asks() -> int:
        rounds, after = 0, ("", 0)
        while True:
            rounds += 1
            batch = await anext(log.missing(other.vector(), after), None)
            if batch is None:
                return rounds
            for item in batch:
                other.add(item)
            after = batch[-1]["origin"], batch[-1]["number"]

    assert asyncio.run(asks()) >= jobs * each / 20
    assert history(other, None) == history(log, None)
    assert len(looked) <= 2 * jobs and get_ident() not in looked
