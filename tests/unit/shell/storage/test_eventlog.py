from __future__ import annotations

import asyncio
import errno
import itertools
import random
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import OperationError
from elasticd.shell.inorder import InOrder
from elasticd.shell.storage import eventform, eventlacking, keptevents
from elasticd.shell.storage import eventlog as module
from elasticd.shell.storage.eventlog import EventLog
from elasticd.shell.storage.eventreading import EventReading
from elasticd.shell.storage.eventshelf import stamp_of
from elasticd.shell.storage.journal import frame
from elasticd.shell.storage.seen import SeenNumbers
from elasticd.types import JobId
from tests.unit.shell.hungdisk import HungDisk

Run = Callable[[Coroutine[Any, Any, None]], None]
JOB = JobId("byte-lm-1-k3f9")


def event(number: int, job: str | None = JOB, **fields: Any) -> dict[str, Any]:
    return {"time": float(number), "job": job, "kind": "test", "n": number, **fields}


def history(log: EventLog, job: JobId | None) -> list[dict[str, Any]]:
    runs = [eventform.read_sound(r) if isinstance(r, Path) else r for r in log.runs(job)]
    found = sorted(itertools.chain(*runs), key=eventform.order_of)
    return [eventform.public(each) for each in found]


def notable(log: EventLog) -> list[dict[str, Any]]:
    return asyncio.run(EventReading(log).notable(JOB))


def of_kind(log: EventLog, job: JobId, kind: str) -> list[dict[str, Any]]:
    return asyncio.run(EventReading(log).of_kinds(job, kind))


def numbers(log: EventLog, job: JobId | None = JOB) -> list[int]:
    return [found["n"] for found in history(log, job)]


def in_memory(log: EventLog) -> list[str]:
    """The files of which events are."""
    return [name for name, _ in log._kept.in_memory()]


def batches(
    log: EventLog, vector: dict[str, int], after: tuple[str, int] = ("", 0)
) -> list[list[dict[str, Any]]]:
    """All that a node with that vector lacks."""

    async def read() -> list[list[dict[str, Any]]]:
        return [batch async for batch in log.missing(vector, after)]

    return asyncio.run(read())


def bring(source: EventLog, target: EventLog) -> None:
    """What two daemons do when they meet."""
    for batch in batches(source, target.vector()):
        assert len(batch) <= eventlacking.BATCH_EVENTS
        for item in batch:
            target.add(item)


def test_own_events_are_numbered_and_shown_without_their_numbers(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "a/1")
    assert log.write(event(1))["number"] == 1
    assert log.write(event(2, None))["number"] == 2
    assert log.vector() == {"a/1": 2}
    assert history(log, JOB) == [event(1)]
    assert history(log, None) == [event(1), event(2, None)]
    assert history(log, JobId("other")) == []


def test_history_survives_a_restart_in_the_order_of_time(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "a/1")
    for number in (3, 1, 2):
        log.write(event(number))
    again = EventLog(tmp_path, "a/2")
    assert numbers(again) == [1, 2, 3]
    again.write(event(4))
    assert again.vector() == {"a/1": 3, "a/2": 1}


def test_the_newest_faults_and_decisions_are_at_hand(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "a/1")
    for number in range(8):
        log.write(event(number, kind="fault_detected", reason=f"fault {number}"))
        log.write(event(number, kind="checkpoint_committed"))
    log.add({**event(-1, kind="oom"), "origin": "b/1", "number": 1})
    for known in (log, EventLog(tmp_path, "a/2")):
        assert [found["n"] for found in notable(known)] == [3, 4, 5, 6, 7]
    assert log.lasting(JobId("other")) == []


def test_events_of_one_kind_are_found(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "a/1")
    for number, kind in enumerate(("world_formed", "other", "world_formed")):
        log.write({**event(number), "kind": kind})
    log.write({**event(9, "other"), "kind": "world_formed"})
    assert [found["n"] for found in of_kind(log, JOB, "world_formed")] == [0, 2]
    assert of_kind(log, JobId("none"), "world_formed") == []


def test_two_nodes_tell_one_another_what_is_missing(tmp_path: Path) -> None:
    a, b = EventLog(tmp_path / "a", "a/1"), EventLog(tmp_path / "b", "b/1")
    for number in range(0, 1000, 2):
        a.write(event(number))
        b.write(event(number + 1))
    bring(a, b)
    bring(b, a)
    assert numbers(a) == numbers(b) == list(range(1000))
    assert a.vector() == b.vector()
    assert batches(a, b.vector()) == []
    c = EventLog(tmp_path / "c", "c/1")  # from the one, though the other has died since
    bring(b, c)
    assert numbers(c) == list(range(1000))


def test_a_hole_is_filled_later(tmp_path: Path) -> None:
    a, b = EventLog(tmp_path / "a", "a/1"), EventLog(tmp_path / "b", "b/1")
    sent = [a.write(event(number)) for number in range(1, 6)]
    assert b.add(sent[0]) and b.add(sent[3])
    assert not b.add(sent[3])
    assert b.vector() == {"a/1": 1}
    bring(a, b)
    assert numbers(b) == [1, 2, 3, 4, 5] and b.vector() == {"a/1": 5}


def test_what_is_no_event_is_refused_and_not_kept(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "a/1")
    good = {**event(1), "origin": "b/1", "number": 1}
    for change in (
        {"job": "../escape"},
        {"job": "a/b"},
        {"job": 7},
        {"number": 0},
        {"number": "1"},
        {"number": True},
        {"origin": 3},
        {"time": "soon"},
        {"time": None},
        {"fill": "x" * eventform.MAX_EVENT_BYTES},
    ):
        with pytest.raises((ValueError, TypeError)):
            log.add({**good, **change})
    with pytest.raises(KeyError):
        log.add({})
    with pytest.raises(TypeError):
        batches(log, [1])  # type: ignore[arg-type]
    assert history(log, None) == [] and list(tmp_path.iterdir()) == []
    assert log.add(good)


def test_too_long_an_event_of_our_own_is_clipped(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "a/1")
    text = "begin" + "x" * eventform.MAX_EVENT_BYTES + "end"
    log.write(event(1, evidence=[text], more={"reason": text}, small="kept"))
    (found,) = history(log, JOB)
    assert found["evidence"][0].startswith("…x") and found["evidence"][0].endswith("xend")
    assert len(found["more"]["reason"]) == eventform.CLIPPED_LETTERS + 1
    assert found["small"] == "kept"


def test_a_file_damaged_anywhere_keeps_the_rest_and_is_healed_by_a_peer(tmp_path: Path) -> None:
    a, b = EventLog(tmp_path / "a", "a/1"), EventLog(tmp_path / "b", "b/1")
    for number in range(1, 6):
        a.write(event(number))
    bring(a, b)
    path = tmp_path / "a" / f"{JOB}.events"
    whole = path.read_bytes()
    for position in range(0, len(whole), 5):
        for damaged in (
            whole[:position],
            whole[:position] + b"\xff" + whole[position + 1 :],
        ):
            path.write_bytes(damaged)
            again = EventLog(tmp_path / "a", "a/2")
            kept = numbers(again)
            assert len(kept) >= (3 if len(damaged) == len(whole) else 0)
            bring(b, again)
            assert numbers(again) == [1, 2, 3, 4, 5]
            assert numbers(EventLog(tmp_path / "a", "a/3")) == [1, 2, 3, 4, 5]


def test_foreign_records_are_left_out(tmp_path: Path) -> None:
    from elasticd.shell.storage.journal import frame

    sound = {**event(1), "origin": "b/1", "number": 1}
    path = tmp_path / f"{JOB}.events"
    path.write_bytes(frame([3]) + frame([sound]) + frame([{"origin": "x"}]))
    (tmp_path / "x.events.partial").write_bytes(b"half")
    assert numbers(EventLog(tmp_path, "a/1")) == [1]
    assert path.read_bytes() == frame([sound])
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_only_the_last_events_are_kept_and_never_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keptevents, "KEPT_EVENTS", 100)
    a, b = EventLog(tmp_path / "a", "a/1"), EventLog(tmp_path / "b", "b/1")
    a.write(event(0, "other"))
    for number in range(1, 500):
        a.write(event(number))
    assert 100 <= len(numbers(a)) <= 110 and numbers(a)[-1] == 499
    assert numbers(a, JobId("other")) == [0]
    again = EventLog(tmp_path / "a", "a/2")
    assert numbers(again) == numbers(a) and again.vector() == {"a/1": 500}
    bring(again, b)
    assert numbers(b) == numbers(a) and numbers(b, JobId("other")) == [0]
    assert b.vector() == again.vector() and batches(again, b.vector()) == []
    assert batches(b, again.vector()) == []
    assert EventLog(tmp_path / "b", "b/2").vector() == b.vector()
    assert (tmp_path / "a" / f"{JOB}.events").stat().st_size < 110 * 200


def test_a_follower_sees_the_history_and_then_the_news(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        log = EventLog(tmp_path, "a/1")
        log.write(event(2))
        log.write(event(1))
        seen: list[int] = []

        async def read(events: AsyncIterator[dict[str, Any]], count: int) -> None:
            async for found in events:
                seen.append(found["n"])
                if len(seen) == count:
                    return

        task = asyncio.create_task(read(EventReading(log).follow(JOB), 5))
        everything = EventReading(log).follow(None)
        assert (await anext(everything))["n"] == 1
        for number in (3, 4, 5):
            await asyncio.sleep(0)
            log.write(event(99, "other"))
            log.write(event(number))
        await task
        assert seen == [1, 2, 3, 4, 5]
        assert [(await anext(everything))["n"] for _ in range(5)] == [2, 99, 3, 99, 4]
        await everything.aclose()  # type: ignore[attr-defined]

    run(main())


def test_a_follower_that_does_not_read_is_let_go(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_EVENTS", 10)

    async def main() -> None:
        log = EventLog(tmp_path, "a/1")
        log.write(event(0))
        follower = EventReading(log).follow(JOB)
        await anext(follower)
        for number in range(1, 30):
            log.write(event(number))
        with pytest.raises(OperationError, match="behind"):
            for _ in range(30):
                await anext(follower)
        assert log._followers == set()

    run(main())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 30))), st.randoms())
def test_progress_counts_like_a_set(notes: list[tuple[str, int]], rng: random.Random) -> None:
    progress, model = SeenNumbers(), {origin: set[int]() for origin in "abc"}
    for origin, number in notes:
        if rng.random() < 0.1:
            progress.raise_floor(origin, number)
            model[origin] |= set(range(1, number + 1))
        progress.note(origin, number)
        model[origin].add(number)
    for origin, numbers_seen in model.items():
        assert all(progress.seen(origin, n) == (n in numbers_seen) for n in range(1, 40))
        assert progress.upto(origin) + 1 not in numbers_seen
        assert set(range(1, progress.upto(origin) + 1)) <= numbers_seen


def test_numbers_that_come_out_of_order_cost_no_more_each() -> None:
    """A start reads the files of one job after the other: most numbers lie beyond a hole. If each
    cost as much as there are, this would take hours."""
    progress = SeenNumbers()
    for number in range(300_000, 0, -1):
        progress.note("a", number)
    assert progress.vector() == {"a": 300_000}
    progress.raise_floor("b", 300_000)
    for number in range(600_000, 300_001, -1):
        progress.note("b", number)
    progress.note("b", 7)
    assert progress.upto("b") == 300_000 and progress.seen("b", 600_000)
    progress.raise_floor("b", 300_001)
    assert progress.upto("b") == 600_000


def test_events_of_ended_jobs_are_read_when_somebody_asks(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "a", "a/1")
    for number in range(1, 600):
        log.write(event(number, kind="job_finished" if number == 599 else "fault_detected"))
    log.write(event(600, "live-2-aaaa"))
    told = history(log, JOB), notable(log), of_kind(log, JOB, "job_finished"), log.ended(JOB)
    for origin in ("a/2", "a/3"):
        log = EventLog(tmp_path / "a", origin)
        again = history(log, JOB), notable(log), of_kind(log, JOB, "job_finished")
        assert (*again, log.ended(JOB)) == told
        assert in_memory(log) == ["live-2-aaaa"]
        assert log.vector() == {"a/1": 600}
    other = EventLog(tmp_path / "b", "b/1")
    bring(log, other)
    assert history(other, None) == history(log, None)


def test_an_event_that_comes_after_the_end_is_kept(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "a/1")
    log.write(event(1, kind="job_failed"))
    log = EventLog(tmp_path, "a/2")
    log.write(event(2))
    assert numbers(log) == [1, 2]
    for origin in ("a/3", "a/4"):
        log = EventLog(tmp_path, origin)
        assert numbers(log) == [1, 2] and log.vector() == {"a/1": 1, "a/2": 1}


def test_what_is_lacking_can_be_asked_for_from_a_place_on(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "a/1")
    for number in range(1, 501):
        log.write(event(number))
    first, *_ = batches(log, {})
    rest = [each for batch in batches(log, {}, ("a/1", 200)) for each in batch]
    assert [each["number"] for each in [*first, *rest]] == list(range(1, 501))


def test_a_damaged_index_costs_nothing_but_time(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "a/1")
    log.write(event(1, kind="job_failed"))
    EventLog(tmp_path, "a/2")
    for data in (b"", b"x", b"\x80", b"\x83\xa7version\x01\xa7origins\x90\xa4jobs\x81\xa1j\x90"):
        (tmp_path / "_shelf").write_bytes(data)
        assert numbers(EventLog(tmp_path, "a/3")) == [1]


@pytest.mark.parametrize(
    "wrong",
    [{"kind": []}, {"kind": "job_finished", "time": "5"}, {"time": float("nan")}, {"time": True}],
)
def test_nonsense_of_a_peer_is_refused_before_it_is_on_the_disk(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    log = EventLog(tmp_path, "me/1")
    for _ in range(2):
        with pytest.raises(ValueError):
            log.add({**event(1), "origin": "peer/1", "number": 1, **wrong})
    assert history(EventLog(tmp_path, "me/2"), JOB) == []


def test_nonsense_on_the_disk_keeps_no_daemon_from_starting(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "me/1")
    log.write(event(1))
    (path,) = tmp_path.glob(f"{JOB}*")
    with path.open("ab") as file:
        file.write(frame([{**event(2), "origin": "peer/1", "number": 1, "kind": []}]))
    assert history(EventLog(tmp_path, "me/2"), JOB) == [event(1)]


def test_what_a_node_lacks_is_read_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventLog(tmp_path, "a/1")
    log.write(event(1, kind="job_finished"))
    log = EventLog(tmp_path, "a/2")  # its events lie on the disk only

    async def story() -> None:
        disk = HungDisk()
        monkeypatch.setattr(eventform, "read_sound", disk.slow(eventform.read_sound))

        async def all_of_them() -> list[int]:
            return [each["n"] async for batch in log.missing({}) for each in batch]

        assert await disk.turned(all_of_them()) == [1]

    asyncio.run(story())


def test_the_oldest_are_dropped_beside_the_loop_and_nothing_that_comes_meanwhile_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keptevents, "KEPT_EVENTS", 10)

    async def story() -> None:
        disk, order = HungDisk(), InOrder("events", _fails)
        monkeypatch.setattr(eventform, "frames", disk.slow(eventform.frames))
        log = EventLog(tmp_path, "a/1", order)
        for number in range(1, 13):
            log.write(event(number))
        assert numbers_kept(log) == list(range(3, 13)), "at once in memory"
        log.write(event(13))
        log.write(event(14))  # once more too many, while the first writing lasts
        await asyncio.to_thread(disk.came.wait)
        await order.flushed(10)
        killed = tmp_path.parent / "killed"
        shutil.copytree(tmp_path, killed)
        disk.go.set()
        file = f"{JOB}.events"
        while (tmp_path / file).read_bytes() == (killed / file).read_bytes():  # noqa: ASYNC110
            await asyncio.sleep(0)
        log.write(event(15))
        await order.flushed(10)

    asyncio.run(story())
    assert numbers(EventLog(tmp_path, "a/2"))[-5:] == [11, 12, 13, 14, 15]
    assert numbers(EventLog(tmp_path.parent / "killed", "a/2"))[-2:] == [13, 14]


def _fails(error: OSError) -> NoReturn:
    raise error


def numbers_kept(log: EventLog) -> list[int]:
    return [each["n"] for run in log.runs(JOB) if isinstance(run, list) for each in run]


def test_events_stay_that_can_not_be_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keptevents, "KEPT_EVENTS", 10)

    def full(events: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(eventform, "frames", full)
    log = EventLog(tmp_path, "a/1")
    for number in range(1, 15):
        log.write(event(number))
    assert numbers(EventLog(tmp_path, "a/2"))[-3:] == [12, 13, 14]
    assert sorted(path.name for path in tmp_path.iterdir() if "partial" in path.name) == []


def test_an_index_of_the_version_before_is_read(tmp_path: Path) -> None:
    """Else the first start after an upgrade would read the events of years."""
    log = EventLog(tmp_path, "a/1")
    log.write(event(1, kind="job_failed"))
    (path,) = tmp_path.glob(f"{JOB}*")
    row = (*stamp_of(path), 5.0, [(0, [(1, 1)])])
    old = {"version": 1, "origins": ["a/1"], "jobs": {JOB: row}}
    (tmp_path / "_shelf").write_bytes(frame([old]))
    assert EventLog(tmp_path, "a/2").ended(JOB) == 5.0, "which no event says"
    log = EventLog(tmp_path, "a/3")
    assert log.ended(JOB) == 5.0 and log.vector() == {"a/1": 1} and numbers(log) == [1]


def test_what_an_index_says_of_all_counts_only_while_all_is_there(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "a/1")
    for number, job in enumerate((JOB, "job-2-aaaa", "job-3-aaaa"), 1):
        log.write(event(number, job, kind="job_failed"))
    assert EventLog(tmp_path, "a/2").vector() == {"a/1": 3}
    (tmp_path / "job-2-aaaa.events").unlink()
    for origin in ("a/3", "a/4"):
        log = EventLog(tmp_path, origin)
        assert log.vector() == {"a/1": 1}, "others send what is lost"
        assert [each["number"] for batch in batches(log, {}) for each in batch] == [1, 3]
    assert [each["number"] for batch in batches(log, {"a/1": 1}) for each in batch] == [3]
    assert [*batches(log, {"a/1": 3})] == []
