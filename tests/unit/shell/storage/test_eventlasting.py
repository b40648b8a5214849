"""Who trained last, how a job ended and what status shows is known however much has come since."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from elasticd.shell.storage import eventreading, keptevents
from elasticd.shell.storage.eventform import Event, order_of, read_sound
from elasticd.shell.storage.eventlasting import LARGER_WORLDS, LAST_WORLDS, lasting
from elasticd.shell.storage.eventlog import EventLog
from elasticd.shell.storage.eventreading import EventReading
from elasticd.shell.storage.eventshelf import stamp_of
from elasticd.shell.storage.journal import frame
from elasticd.shell.storage.outputs import LastWorld, last_world
from tests.unit.shell.storage.test_eventlog import JOB, bring, event, notable

KEPT = 60


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keptevents, "KEPT_EVENTS", KEPT)


def world(number: int, *members: str, generation: int | None = None) -> Event:
    counter = number if generation is None else generation
    return event(number, kind="world_formed", members=[*members], generation=counter)


def done(number: int, generation: int) -> Event:
    return event(number, kind="job_finished", generation=generation)


def trained(folder: Path) -> EventLog:
    """Of a job that formed its last world long ago."""
    log = EventLog(folder, "a/1")
    log.write(world(1, "a", "b", "c"))
    for number in range(2, 2 + LAST_WORLDS):
        log.write(world(number, "a"))
    log.write(world(30, "a", "b"))
    log.write(event(31, kind="fault_detected"))
    for number in range(32, 500):
        log.write(event(number))
    return log


def last(log: EventLog) -> LastWorld | None:
    return last_world(asyncio.run(EventReading(log).lasting(JOB)), None)


def check(log: EventLog) -> None:
    assert last(log) == (30, ("a", "b"))
    for least, members in ((1, ["a", "b"]), (3, ["a", "b", "c"])):
        assert asyncio.run(EventReading(log).last_members(JOB, least)) == members
    (fault,) = notable(log)
    assert fault == event(31, kind="fault_detected")


def test_that_outputs_are_not_copied_is_shown(tmp_path: Path) -> None:
    log, kinds = EventLog(tmp_path, "a/1"), ["output_skipped", "output_not_copied"]
    for number, kind in enumerate(kinds):
        log.write(event(number, kind=kind))
    assert [each["kind"] for each in notable(log)] == kinds


async def _shown(log: EventLog) -> list[int]:
    return [each["n"] async for each in EventReading(log).so_far(JOB)]


@pytest.mark.parametrize("memory_bytes", [keptevents.MEMORY_BYTES, 3000])
def test_the_last_world_is_known_after_all_around_it_was_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory_bytes: int
) -> None:
    """Here, after a start, at a node that joins, and after its start."""
    monkeypatch.setattr(keptevents, "MEMORY_BYTES", memory_bytes)
    log, other = trained(tmp_path / "a"), EventLog(tmp_path / "b", "b/1")
    check(log)
    shown = asyncio.run(_shown(log))
    assert shown == [*range(500 - len(shown), 500)] and len(shown) < 200, "no hole is shown"
    again = EventLog(tmp_path / "a", "a/2")
    check(again)
    with other.followed() as queue:
        bring(again, other)
        told = [queue.get_nowait() for _ in range(queue.qsize())]
    assert [each and each["n"] for each in told] == shown
    assert other.vector() == again.vector() == {"a/1": 487}
    for each in (other, EventLog(tmp_path / "b", "b/2")):
        check(each)
        assert asyncio.run(_shown(each))[-KEPT:] == shown[-KEPT:]


@pytest.mark.parametrize("version", [1, 2])
def test_the_last_world_of_a_job_that_has_ended_is_found_in_its_file(
    tmp_path: Path, version: int
) -> None:
    """No index says anything of it, so one that an earlier version wrote will do."""
    trained(tmp_path).write(done(500, 30))
    log = EventLog(tmp_path, "a/2")
    check(log)
    if version == 1:
        (path,) = tmp_path.glob(f"{JOB}*")
        held = [(number["number"], number["number"]) for number in read_sound(path)]
        old = {"version": 1, "origins": ["a/1"], "jobs": {JOB: (*stamp_of(path), 7.0, [(0, held)])}}
        (tmp_path / "_shelf").write_bytes(frame([old]))
    for origin in ("a/3", "a/4"):
        log = EventLog(tmp_path, origin)
        assert log.ended(JOB) == (7.0 if version == 1 else 500.0)
        assert log.lasting(JOB) is None, "its file was not read"
        check(log)


def test_who_asks_again_and_again_has_no_file_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def noting(path: Path) -> list[Event]:
        read.append(path)
        return read_sound(path)

    monkeypatch.setattr(eventreading, "read_sound", noting)
    log = trained(tmp_path)
    log._kept.put_away(JOB)
    check(log)
    assert read == [], "the job still runs"
    log.write(done(500, 30))
    for _ in range(2):
        check(log)
    assert len(read) == 1
    log = EventLog(tmp_path, "a/2")
    log.write(event(501))
    log._kept.put_away(JOB)
    log = EventLog(tmp_path, "a/3")
    log = EventLog(tmp_path, "a/4")
    for _ in range(2):
        check(log)
    assert len(read) == 2


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_world_in_which_a_job_has_finished_is_its_last_however_late_that_is_told(
    tmp_path: Path, on_disk: bool
) -> None:
    """Where a network was cut: the other half has formed many worlds since."""
    log = EventLog(tmp_path, "a/1")
    log.write(world(1, "c"))
    for number in range(2, 40):
        log.write(world(number, "a", "b"))
    assert last(log) == (39, ("a", "b"))
    if on_disk:
        log._kept.put_away(JOB)
    log.write(done(40, 1))
    assert last(log) == (1, ("c",))
    for number in range(41, 200):
        log.write(world(number, "a"))
    assert last(log) == last(EventLog(tmp_path, "a/2")) == (1, ("c",))


def test_what_lasts_is_the_same_whether_it_was_told_at_once_or_one_by_one_in_any_order(
    tmp_path: Path,
) -> None:
    dice = Random(7)
    events: list[Event] = [done(3, 700)]
    for number in range(4, 500):
        kinds = "test", "fault_detected", "job_failed"
        members = "abcdefghijkl"[: dice.randint(1, 12)]
        one = world(number, *members, generation=dice.randint(1, 1000))
        events.append(dice.choice([one, one, one, event(number, kind=dice.choice(kinds))]))
    dice.shuffle(events)
    log = EventLog(tmp_path, "a/1")
    told = [log.write(each) for each in events]
    expected = [each["n"] for each in sorted(lasting(told), key=order_of)]
    assert [each["n"] for each in log.lasting(JOB) or ()] == expected
    log._kept.put_away(JOB)
    assert [each["n"] for each in log.lasting(JOB) or ()] == expected
    for origin in ("a/2", "a/3"):
        found = asyncio.run(EventReading(EventLog(tmp_path, origin)).lasting(JOB))
        assert [each["n"] for each in found] == expected


def test_what_lasts_is_bounded(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "a/1")
    for number in range(600):
        log.write(world(number, "a"))
        assert len(log._kept._lasting._in_memory[JOB]) < 256, "nobody has asked"
    keys = {"origin": "a/1", "number": 1}
    formed = [
        {**world(number, *map(str, range(900 - number))), **keys, "number": number}
        for number in range(1, 800)
    ]
    ends = [
        {**done(number, number), **keys, "origin": "b/1", "number": number}
        for number in range(1, 800)
    ]
    found = lasting([*formed, *ends])
    assert formed[-1] in found and len(found) <= 2 * LAST_WORLDS + LARGER_WORLDS


def test_what_another_node_tells_of_a_world_may_be_anything(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "a/1")
    log.write(world(1, "a", "b"))
    several: tuple[Event, ...] = {"generation": []}, {"members": 3}, {"generation": "x"}
    for strange in several:
        log.write(event(2, kind="world_formed", **strange))
    log.write(event(3, kind="job_finished", generation={}))
    log.write(event(4, kind="node_dropped", generation=9, members=["c"]))
    assert last(log) == (1, ("a", "b")), "of another kind may be who has gone"
    assert asyncio.run(EventReading(log).last_members(JOB, 2)) == ["a", "b"]
