"""Years of ended jobs, as a node that joins is told of them: outputs come in bounded parts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from elasticd.core.words.records import JobRecord
from elasticd.settings.keep import KeepRules
from elasticd.shell.children.files import ChildFiles
from elasticd.shell.clock import unix_seconds
from elasticd.shell.storage.archives import Archives
from elasticd.shell.storage.outputending import JOBS_AT_ONCE, JOBS_IN_A_ROUND, EndedOutputs
from elasticd.shell.storage.tidying import Tidying
from elasticd.shell.tasks import Tasks
from elasticd.types import JobId

JOBS = [JobId(f"job-{number}") for number in range(1000)]
LIVE = JobId("live-1")
DAY = 86_400.0


class Asked:
    """Who is asked for the outputs of which job."""

    def __init__(self) -> None:
        self.jobs: list[JobId] = []
        self.at_once = self.most = 0

    async def copy(self, job: JobId) -> None:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0)
        self.jobs.append(job)
        self.at_once -= 1

    async def fails(self, job: JobId) -> None:
        raise LookupError(job)


async def _told(asked: Asked, beyond: set[JobId], *works: Any) -> int:
    """Returns the most tasks that there were."""
    tasks = Tasks("copying")
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    ended = EndedOutputs((asked.copy, *works), lambda job: job == LIVE, tasks)
    ended.beyond = lambda: beyond
    for number, job in enumerate(JOBS):
        ended.add(job, number)
    most = len(tasks)
    ended.add(LIVE, len(JOBS))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert LIVE in asked.jobs, "it waits for none of the old ones"
    while len(tasks):
        most = max(most, len(tasks))
        await tasks.ended()
    return most


def test_a_few_jobs_are_asked_for_at_a_time_and_each_once() -> None:
    asked = Asked()
    assert asyncio.run(_told(asked, set())) <= 2 * JOBS_AT_ONCE + 1
    assert sorted(asked.jobs) == sorted([*JOBS, LIVE]) and asked.most <= JOBS_AT_ONCE + 1


def test_the_newest_come_first() -> None:
    asked = Asked()
    asyncio.run(_told(asked, set()))
    assert {*asked.jobs[: JOBS_IN_A_ROUND + 1]} <= {LIVE, *JOBS[-JOBS_AT_ONCE * JOBS_IN_A_ROUND :]}
    assert {*asked.jobs[-JOBS_IN_A_ROUND:]} <= {*JOBS[: JOBS_AT_ONCE * JOBS_IN_A_ROUND]}


def test_none_is_left_out_because_the_rules_could_not_be_looked_up() -> None:
    asked, failures = Asked(), [OSError("a defect")]

    def beyond() -> frozenset[JobId]:
        if failures:
            raise failures.pop()
        return frozenset()

    async def main() -> None:
        tasks = Tasks("copying")
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        ended = EndedOutputs((asked.copy,), lambda job: False, tasks)
        ended.beyond = beyond
        for number in (0, 1):
            ended.add(JOBS[number], number)
            while len(tasks):
                await tasks.ended()

    asyncio.run(main())
    assert asked.jobs == [JOBS[1], JOBS[0]]


def test_for_what_would_be_thrown_away_nobody_is_asked() -> None:
    asked = Asked()
    asyncio.run(_told(asked, set(JOBS[:-3])))
    assert sorted(asked.jobs) == sorted([*JOBS[-3:], LIVE])


def test_one_that_fails_keeps_none_from_its_turn() -> None:
    asked = Asked()
    asyncio.run(_told(asked, set(), asked.fails))
    assert len(asked.jobs) == len(JOBS) + 1


def _records() -> list[JobRecord]:
    running = JobRecord(LIVE, 9999, {"job": {"name": "job"}}, "digest", "running")
    return [
        running,
        *(replace(running, id=j, number=n, state="finished") for n, j in enumerate(JOBS)),
    ]


def _tidying(
    home: Path, records: list[JobRecord], ended: dict[JobId, float], forgotten: list[JobId]
) -> Tidying:
    none = cast(Any, None)
    children = SimpleNamespace(files=ChildFiles(home), runs=lambda job: False, open_logs=set)
    archives = Archives(home / "archives", none, none, none)
    return Tidying(
        home, KeepRules(days=0), lambda: records, ended.get, cast(Any, children), archives,
        forgotten.extend,
    )  # fmt: skip


def test_what_the_rules_keep_is_asked_for(tmp_path: Path) -> None:
    records = _records()
    now = unix_seconds()
    ended = {job: now - DAY * (len(JOBS) - number - 0.5) for number, job in enumerate(JOBS)}
    tidying = _tidying(tmp_path, records, ended, [])
    asyncio.run(tidying.tidy())
    assert tidying.beyond() == frozenset()
    for rules, kept in ((KeepRules(days=30, jobs=0, results=False), 30),
                        (KeepRules(days=0, jobs=7, results=False), 7),
                        (KeepRules(days=0, jobs=0, results=False), len(JOBS))):  # fmt: skip
        tidying.rules = rules
        assert tidying.beyond() == frozenset(JOBS[: len(JOBS) - kept])


def test_by_a_clock_that_is_a_year_ahead_nothing_is_forgotten_once_the_events_come(
    tmp_path: Path,
) -> None:
    """Who joins is asked what is beyond, and tidies, before it knows when any job ended."""
    records, ended, forgotten = _records(), dict[JobId, float](), list[JobId]()
    tidying = _tidying(tmp_path, records, ended, forgotten)
    tidying.rules = KeepRules(days=30, jobs=0, results=False)
    assert tidying.beyond() == frozenset()
    asyncio.run(tidying.tidy())
    ended.update(dict.fromkeys(JOBS, unix_seconds() - 365 * DAY))
    assert tidying.beyond() == frozenset()
    asyncio.run(tidying.tidy())
    assert (tidying.beyond(), forgotten) == (frozenset(), [])


def test_a_job_whose_end_is_not_known_yet_is_asked_for(tmp_path: Path) -> None:
    ended = {job: unix_seconds() - 100.0 + number for number, job in enumerate(JOBS[:10])}
    tidying = _tidying(tmp_path, _records(), ended, [])
    tidying.rules = KeepRules(days=0, jobs=7, results=False)
    assert tidying.beyond() == frozenset(JOBS[:3])
