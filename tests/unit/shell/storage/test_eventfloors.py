"""What goes of a history when jobs are forgotten, and what other nodes have no need to send."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path
from typing import NoReturn

import pytest

from elasticd.shell.inorder import InOrder
from elasticd.shell.storage import eventfiles, eventform, keptevents
from elasticd.shell.storage.durable import write_whole
from elasticd.shell.storage.eventlog import EventLog
from elasticd.shell.storage.journal import salvage
from elasticd.types import JobId
from tests.unit.shell.hungdisk import HungDisk
from tests.unit.shell.storage.test_eventlog import JOB, batches, bring, event, numbers

GONE = JobId("gone-2-k3f9")


def test_of_a_forgotten_job_no_event_stays_and_none_comes_back(tmp_path: Path) -> None:
    a, b = EventLog(tmp_path / "a", "a/1"), EventLog(tmp_path / "b", "b/1")
    for number in range(10):
        a.write(event(number, JOB if number % 2 else GONE, kind="fault_detected"))
    bring(a, b)
    a.forget([GONE])
    assert numbers(a, GONE) == [] and numbers(a) == [1, 3, 5, 7, 9]
    assert a.lasting(GONE) == [] and a.ended(GONE) is None
    assert not a._files.path(GONE).exists()
    assert batches(b, a.vector()) == [], "nothing is missing"
    late = b.write(event(10, GONE))
    assert not a.add(late) and a.vector()["b/1"] == 1
    assert a.write(event(11, GONE))["number"] == 11 and numbers(a, GONE) == []

    again = EventLog(tmp_path / "a", "a/2")
    again.forget([GONE])
    assert again.vector() == {"a/1": 10}, "the last one was never kept"
    bring(b, again)
    assert numbers(again, GONE) == [] and numbers(again) == [1, 3, 5, 7, 9]
    assert again.vector() == {"a/1": 10, "b/1": 1} and batches(b, again.vector()) == []


def test_who_joins_asks_once_for_what_is_between_forgotten_events(tmp_path: Path) -> None:
    a, c = EventLog(tmp_path / "a", "a/1"), EventLog(tmp_path / "c", "c/1")
    for number in range(1, 6):
        a.write(event(number, GONE if number == 3 else JOB))
    a.forget([GONE])
    bring(a, c)
    assert numbers(c) == [1, 2, 4, 5] and c.vector() == {"a/1": 5}
    assert batches(a, c.vector()) == batches(c, a.vector()) == []


@pytest.mark.parametrize("ended", [False, True])
def test_events_on_the_shelf_go_too(tmp_path: Path, ended: bool) -> None:
    log = EventLog(tmp_path, "a/1")
    for job in (GONE, JOB):
        log.write(event(1, job))
        log.write(event(2, job, kind="job_finished"))
    log = EventLog(tmp_path, "a/2")  # those of both lie on the disk only
    assert batches(log, {})
    if ended:
        log.write(event(3, GONE))  # those of one are in memory again
    log.forget([GONE])
    told = [each["job"] for batch in batches(log, {}) for each in batch if "job" in each]
    assert told == [JOB, JOB] and numbers(log, GONE) == []
    again = EventLog(tmp_path, "a/3")
    assert again.vector() == {"a/1": 4} and list(again._kept._shelves) == [JOB]


def test_origins_of_which_no_event_is_left_are_asked_about_no_more(tmp_path: Path) -> None:
    """There is one for each start of a daemon, for ever: all would be in each question."""
    for number in range(50):
        log = EventLog(tmp_path / "a", f"a/{number}")
        log.write(event(number, GONE))
    log.write(event(50, JOB))
    b = EventLog(tmp_path / "b", "b/0")
    bring(log, b)
    for each in (log, b):
        each.forget([GONE])
        assert len(each.vector()) == 50
    log = EventLog(tmp_path / "a", "a/50")
    assert log.vector() == {"a/49": 2}
    assert batches(b, log.vector()) == [], "the other one's floors are about nothing"
    assert (tmp_path / "a" / "_floors.events").stat().st_size < 30
    assert EventLog(tmp_path / "b", "b/1").vector() == log.vector()


def test_many_floors_that_another_node_tells_of_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole file for each of some ten thousand would be gigabytes."""

    async def main() -> None:
        disk, order = HungDisk(), InOrder("events", raise_it)
        written: list[Path] = []

        def noted(path: Path, data: bytes) -> None:
            written.append(path)
            write_whole(path, data)

        monkeypatch.setattr(eventfiles, "write_whole", disk.slow(noted))
        log = EventLog(tmp_path, "a/1", order)

        def add(number: int) -> None:
            log.add({"origin": f"b/{number}", "number": 5, "kind": "_floor"})

        async def others() -> None:
            for number in range(1, 100):
                add(number)

        add(0)
        await disk.beside(others())
        await order.flushed(10)
        assert len(written) == 2, "the first, and what came while it was written"

    asyncio.run(main())
    (kept,) = salvage((tmp_path / "_floors.events").read_bytes())
    assert kept == {f"b/{number}": 5 for number in range(100)}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_keeps_no_job_from_being_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """People do that to have room. A peer sends the rest again after the next start, no more."""

    def refuses(path: Path, data: bytes) -> NoReturn:
        raise OSError(code, "it can't be written", str(path))

    failed: list[OSError] = []

    async def main() -> None:
        order = InOrder("events", failed.append)
        log = EventLog(tmp_path, "a/1", order)
        log.write(event(1, GONE))
        log.write(event(2, JOB))
        monkeypatch.setattr(eventfiles, "write_whole", refuses)
        log.forget([GONE])
        await order.flushed(10)
        await asyncio.sleep(0)
        assert files_left(tmp_path) == [JOB]
        if code == errno.ENOSPC:
            monkeypatch.undo()
            log.forget([JOB])
            await order.flushed(10)
            assert (tmp_path / "_floors.events").exists(), "there is room again"

    asyncio.run(main())
    assert [error.errno for error in failed] == ([] if code == errno.ENOSPC else [code])


def test_what_is_read_when_its_job_is_forgotten_is_not_kept(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "a/1")
    log.write(event(1, GONE, kind="job_failed"))

    async def main() -> None:
        order = InOrder("events", raise_it)
        log = EventLog(tmp_path, "a/2", order)
        log.write(event(2, GONE))  # has the rest read, beside the loop
        log.forget([GONE])
        await order.flushed(10)
        await asyncio.sleep(0)
        assert numbers(log, GONE) == [] and files_left(tmp_path) == []

    asyncio.run(main())


def test_what_is_written_anew_when_its_job_is_forgotten_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keptevents, "KEPT_EVENTS", 10)

    async def main() -> None:
        disk, order = HungDisk(), InOrder("events", raise_it)
        monkeypatch.setattr(eventform, "frames", disk.slow(eventform.frames))
        log = EventLog(tmp_path, "a/1", order)
        for number in range(12):
            log.write(event(number, GONE))
        log.forget([GONE])
        await order.flushed(10)
        disk.go.set()
        for thread in threading.enumerate():
            if thread.name == "events aside":
                await asyncio.to_thread(thread.join)
        await order.flushed(10)
        assert files_left(tmp_path) == []

    asyncio.run(main())


def files_left(folder: Path) -> list[str]:
    """The jobs that have a file there."""
    return [path.stem for path in folder.glob("*-*.events")]


def raise_it(error: OSError) -> NoReturn:
    raise error
