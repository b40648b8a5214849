"""The loop turns while many events are read, and while the disk that has them hangs."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from elasticd.shell.storage import eventreading
from elasticd.shell.storage.eventform import read_sound
from elasticd.shell.storage.eventlog import EventLog
from elasticd.shell.storage.eventreading import EventReading
from elasticd.types import JobId

Run = Callable[[Coroutine[Any, Any, None]], None]
JOB = JobId("byte-lm-1-k3f9")


def event(number: int, kind: str = "test", job: str = JOB) -> dict[str, Any]:
    return {"time": float(number), "job": job, "kind": kind, "n": number}


class Pipe:
    """In the place of a job's file: who opens it hangs until it is let go."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{JOB}.events"
        self.data = self.path.read_bytes()
        self.path.unlink()
        os.mkfifo(self.path)

    def let_go(self) -> None:
        with self.path.open("wb") as file:
            file.write(self.data)


def shelved(folder: Path) -> EventLog:
    log = EventLog(folder, "a/1")
    log.write(event(0, "world_formed") | {"members": ["x", "y"]})
    for number in range(1, 9):
        log.write(event(number, "fault_detected"))
    log.write(event(9, "job_finished"))
    EventLog(folder, "a/2")  # makes the index
    return EventLog(folder, "a/3")


def test_a_hung_disk_holds_nobody_else_up(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        reading, another = EventReading(shelved(tmp_path)), EventReading(EventLog(tmp_path, "a/4"))
        for ask, told in (
            (lambda: _numbers(reading), list(range(10))),
            (lambda: _notable(reading), [4, 5, 6, 7, 8]),
            (lambda: another.last_members(JOB), ["x", "y"]),
        ):
            pipe = Pipe(tmp_path)
            task = asyncio.create_task(ask())
            for _ in range(20):
                await asyncio.sleep(0)  # a heartbeat each
            assert not task.done()
            await asyncio.to_thread(pipe.let_go)
            assert await task == told
            pipe.path.unlink()
            pipe.path.write_bytes(pipe.data)

    run(main())


async def _numbers(reading: EventReading) -> list[int]:
    return [each["n"] async for each in reading.so_far(None)]


async def _notable(reading: EventReading) -> list[int]:
    return [each["n"] for each in await reading.notable(JOB)]


def test_what_comes_while_the_history_is_read_is_told_once(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        log = shelved(tmp_path)
        pipe = Pipe(tmp_path)
        follower = EventReading(log).follow(None)
        first = asyncio.ensure_future(anext(follower))
        await asyncio.sleep(0)
        # Another node tells of another job; and of this one what is on the disk by now, too.
        log.add({**event(20, job="other"), "origin": "b/1", "number": 1})
        later = {**event(21), "origin": "b/1", "number": 2}
        for queue in log._followers:
            queue.put_nowait(later)
        pipe.data += _file_of(tmp_path / "beside", later)
        await asyncio.to_thread(pipe.let_go)
        told = [(await first)["n"]] + [(await anext(follower))["n"] for _ in range(11)]
        assert told == [*range(10), 20, 21]

    run(main())


def _file_of(folder: Path, event: dict[str, Any]) -> bytes:
    log = EventLog(folder, "c/1")
    log.add(event)
    return (folder / f"{JOB}.events").read_bytes()


def test_of_many_jobs_few_are_in_memory_at_once(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is read to see when it begins, and again when its turn has come."""
    log = EventLog(tmp_path, "a/1")
    jobs = [f"job-{number}-aaaa" for number in range(5)]
    for at, job in enumerate(jobs):
        for number in (0, *range(2, 100), 1):  # that one was told late
            log.write(event(100 * at + number, "job_finished", job))
    told, read = list[int](), list[tuple[str, int]]()

    def noting(path: Path) -> list[dict[str, Any]]:
        read.append((path.stem, len(told)))
        return read_sound(path)

    monkeypatch.setattr(eventreading, "read_sound", noting)

    async def main() -> None:
        async for each in EventReading(EventLog(tmp_path, "a/2")).so_far(None):
            told.append(each["n"])

    run(main())
    assert told == [*range(500)]
    assert sorted(read[:5]) == [(job, 0) for job in jobs]
    assert [job for job, _ in read[5:]] == jobs
    for at, (_, before) in enumerate(read[5:]):
        assert before >= 100 * at - eventreading.EVENTS_AT_ONCE


def test_jobs_at_the_same_time_are_told_in_the_order_of_time(tmp_path: Path, run: Run) -> None:
    log = EventLog(tmp_path, "a/1")
    for number in range(300):
        log.write(event(number, "job_finished", f"job-{number % 3 + 1}-aaaa"))

    async def main() -> None:
        assert await _numbers(EventReading(EventLog(tmp_path, "a/2"))) == [*range(300)]

    run(main())


def test_the_loop_has_its_turn_between_events(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        log = EventLog(tmp_path, "a/1")
        for number in range(1000):
            log.write(event(number))
        turns: list[int] = []

        async def count() -> None:
            while True:
                turns.append(len(told))
                await asyncio.sleep(0)

        told: list[int] = []
        other = asyncio.create_task(count())
        async for each in EventReading(log).so_far(None):
            told.append(each["n"])
        other.cancel()
        assert told == list(range(1000))
        most = max(after - before for before, after in itertools.pairwise(turns))
        assert most <= 64

    run(main())
