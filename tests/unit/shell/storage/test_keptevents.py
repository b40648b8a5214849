"""However much other nodes tell, of whatever jobs, only the newest of it stays in memory."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from structlog.testing import capture_logs

from elasticd.checkpoints.sequential import write_all
from elasticd.shell.inorder import InOrder
from elasticd.shell.storage import eventfiles, eventform, keptevents
from elasticd.shell.storage.eventlacking import _FilesRead
from elasticd.shell.storage.eventlasting import KEPT_JOBS
from elasticd.shell.storage.eventlog import EventLog
from elasticd.types import JobId
from tests.unit.shell.hungdisk import HungDisk
from tests.unit.shell.storage.test_eventlog import (
    JOB,
    batches,
    bring,
    event,
    history,
    notable,
    numbers,
)

JOBS, ORIGINS, EACH = 150, 4, 20
BOUND = 20_000


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keptevents, "MEMORY_BYTES", BOUND)


def years(log: EventLog) -> None:
    """Of many jobs, as another node tells: one of its origins after the other, the jobs' ends
    last."""
    for origin in range(ORIGINS):
        for number in range(JOBS * EACH // ORIGINS):
            job, place = divmod(number, EACH // ORIGINS)
            last = origin == ORIGINS - 1 and place == EACH // ORIGINS - 1
            kind = "job_failed" if last else "fault_detected" if place else "test"
            told = event(number, f"job-{job}", kind=kind, origin=f"n/{origin}")
            assert log.add({**told, "number": number + 1})
            assert count(log) * 60 < BOUND


def count(log: EventLog) -> int:
    """Of events in memory."""
    return sum(len([*keys]) for _, keys in log._kept.in_memory())


def test_years_that_another_node_tells_at_once_lie_on_the_disk(tmp_path: Path) -> None:
    log, other = EventLog(tmp_path / "a", "a/1"), EventLog(tmp_path / "b", "b/1")
    years(log)
    assert log.vector() == {f"n/{origin}": JOBS * EACH // ORIGINS for origin in range(ORIGINS)}
    assert all(len(history(log, JobId(f"job-{job}"))) == EACH for job in range(JOBS))
    assert len(history(log, None)) == JOBS * EACH
    assert len(log._kept._lasting._put_away) <= KEPT_JOBS
    bring(log, other)
    assert other.vector() == log.vector() and history(other, None) == history(log, None)
    assert batches(log, other.vector()) == []
    again = EventLog(tmp_path / "a", "a/2")
    assert again.vector() == log.vector() and history(again, None) == history(log, None)
    log.forget(["job-3"])
    assert history(log, JobId("job-3")) == [] and len(history(log, None)) == (JOBS - 1) * EACH


def test_what_comes_of_a_job_while_others_are_told_of_it_is_told_too(tmp_path: Path) -> None:
    """Some of it lies on the disk only, some was put there since they began to be told."""
    log, other = EventLog(tmp_path / "a", "a/1"), EventLog(tmp_path / "b", "b/1")
    years(log)

    async def main() -> None:
        async for batch in log.missing({}):
            log.write(event(1, "job-0", text="x" * BOUND))  # puts all others away
            for item in batch:
                other.add(item)

    asyncio.run(main())
    assert count(log) == 0
    bring(log, other)
    assert history(other, None) == history(log, None)


def test_what_was_put_away_since_a_file_was_read_is_found_in_it(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "a/1")
    log.write(event(1))
    log._kept.put_away(JOB)

    async def main() -> None:
        read = _FilesRead(log._kept)
        assert await read.event(JOB, ("a/1", 2)) is None, "it was read when all was written"
        log.write(event(2))
        log._kept.put_away(JOB)
        found = await read.event(JOB, ("a/1", 2))
        assert found is not None and found["n"] == 2

    asyncio.run(main())


def test_faults_are_told_of_jobs_that_lie_on_the_disk(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "a/1")
    for number in range(1, 8):
        log.write(event(number, kind="fault_detected"))
    log.write(event(8, "other", text="x" * BOUND))
    assert count(log) == 0 and log.lasting(JOB) is not None, "the last ones stay at hand"
    log.write(event(9, kind="fault_detected"))
    assert [each["n"] for each in notable(log)] == [4, 5, 6, 7, 9]
    shorts(log)
    assert log.lasting(JOB) is None
    log.write(event(10, kind="fault_detected"))
    assert log.lasting(JOB) is None
    assert [each["n"] for each in notable(log)] == [5, 6, 7, 9, 10]
    assert log.lasting(JOB) is not None, "what was read once is at hand"
    log.write(event(11, kind="fault_detected"))
    assert [each["n"] for each in log.lasting(JOB) or ()] == [6, 7, 9, 10, 11]


def shorts(log: EventLog, kind: str = "test") -> None:
    """So many other jobs come that nothing is at hand of earlier ones."""
    for number in range(KEPT_JOBS):
        log.write(event(number, f"job-{number}", kind=kind, text="x" * (BOUND + 1)))


def test_faults_of_a_quiet_job_stay_at_hand_beside_many_short_ones(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "a/1")
    log.write(event(1, kind="fault_detected"))
    shorts(log, "job_finished")
    assert [each["n"] for each in log.lasting(JOB) or ()] == [1]
    ends = log.lasting(JobId(f"job-{KEPT_JOBS - 1}")) or ()
    assert [each["n"] for each in ends] == [KEPT_JOBS - 1] and log.lasting(JobId("job-0")) is None


def test_faults_that_come_while_others_are_read_are_not_left_out(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "a/1")
    log.write(event(1, kind="fault_detected"))
    shorts(log)
    read = log.lasting_read(JOB)
    log.write(event(2, kind="fault_detected"))
    read([event(1, kind="fault_detected")])
    assert log.lasting(JOB) is None and [each["n"] for each in notable(log)] == [1, 2]
    shorts(log)
    read = log.lasting_read(JOB)
    log.forget([JOB])
    read([event(1, kind="fault_detected")])
    assert log.lasting(JOB) == []


def test_the_oldest_of_a_job_on_the_disk_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keptevents, "KEPT_EVENTS", 1000)
    log, other = EventLog(tmp_path / "a", "a/1"), EventLog(tmp_path / "b", "b/1")
    for number in range(1, 5001):
        log.write(event(number))
    assert 1000 <= len(numbers(log)) <= 1500 and numbers(log)[-1] == 5000
    bring(log, other)
    assert other.vector() == log.vector() == {"a/1": 5000}
    assert EventLog(tmp_path / "a", "a/2").vector() == {"a/1": 5000}


def test_what_comes_while_a_file_is_read_for_its_oldest_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keptevents, "KEPT_EVENTS", 100)
    monkeypatch.setattr(keptevents, "MEMORY_BYTES", 5000)

    async def main() -> None:
        disk, order = HungDisk(), InOrder("events", _fails)
        log = EventLog(tmp_path, "a/1", order)
        monkeypatch.setattr(eventform, "sound_in", disk.slow(eventform.sound_in))
        number = 0
        while not log._kept._trimming:
            log.write(event(number := number + 1))
        await asyncio.to_thread(disk.came.wait)
        for _ in range(150):
            log.write(event(number := number + 1))
        disk.go.set()
        await order.flushed(10)
        await asyncio.sleep(0)
        assert not log._kept._trimming
        await order.flushed(10)
        while log._files._rewriting._meanwhile:  # noqa: ASYNC110  it is done in a thread
            await asyncio.sleep(0)
        await order.flushed(10)  # the new file is in its place
        found = numbers(EventLog(tmp_path, "a/2"))
        assert found[-100:] == list(range(number - 99, number + 1))

    asyncio.run(main())


def _trimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[], None]) -> None:
    """A job has more than is kept, and its file is spoiled while it is read for that."""
    monkeypatch.setattr(keptevents, "KEPT_EVENTS", 100)
    monkeypatch.setattr(keptevents, "MEMORY_BYTES", 5000)
    read = eventform.sound_in

    def spoiled(path: Path) -> list[eventform.Event]:
        spoil()
        return read(path)

    async def main() -> None:
        order = InOrder("events", _fails)
        log = EventLog(tmp_path, "a/1", order)
        monkeypatch.setattr(eventform, "sound_in", spoiled)
        for number in range(1, 401):
            log.write(event(number))
            await order.flushed(10)
            await asyncio.sleep(0)
        assert not log._kept._trimming, "it is tried again"

    asyncio.run(main())


def test_a_file_that_can_not_be_read_now_is_not_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with capture_logs() as told:
        _trimmed(tmp_path, monkeypatch, fails)
    assert [each["reason"] for each in told] == ["[Errno 24] Too many open files"], "once"
    monkeypatch.undo()
    assert numbers(EventLog(tmp_path, "a/2")) == [*range(1, 401)]


def test_a_file_that_gives_less_than_it_was_to_have_is_not_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"{JOB}.events"

    def damages() -> None:
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2] + b"x" * (len(data) // 2))

    written: list[str] = []
    monkeypatch.setattr(
        eventfiles.EventFiles, "rewrite", lambda self, name, content: written.append(name)
    )
    _trimmed(tmp_path, monkeypatch, damages)
    assert written == []


def test_neither_is_written_anew_what_was_forgotten_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keptevents, "KEPT_EVENTS", 100)
    monkeypatch.setattr(keptevents, "MEMORY_BYTES", 5000)

    async def main() -> None:
        order = InOrder("events", _fails)
        log = EventLog(tmp_path, "a/1", order)
        while not log._kept._trimming:
            log.write(event(1))
        log.forget([JOB])
        await order.flushed(10)
        await asyncio.sleep(0)
        assert not log._kept.has(JOB)

    asyncio.run(main())
    assert [*tmp_path.glob(f"{JOB}*")] == []


def test_who_lacks_something_gets_it_while_the_disk_hangs_that_has_written_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        order = InOrder("events", _fails)
        log = EventLog(tmp_path, "a/1", order)
        years(log)
        await order.flushed(10)
        disk = HungDisk()
        monkeypatch.setattr(eventfiles, "write_all", disk.slow(write_all))
        log.write(event(1, "job-0"))

        async def lacked() -> int:
            return len([each async for batch in log.missing({}) for each in batch])

        assert await disk.beside(lacked()) == JOBS * EACH + 1

    asyncio.run(main())


def _fails(error: OSError) -> NoReturn:
    raise error
