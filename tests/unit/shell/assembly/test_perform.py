"""In which order things are done that the control plane asks for."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticd.core.words import effects as e
from elasticd.core.words.records import JobRecord
from elasticd.errors import DiskError
from elasticd.shell.assembly.perform import Performers
from elasticd.types import JobId
from tests.unit.shell.storage.test_records import NODE, world


def test_a_world_is_journalled_when_its_main_has_what_the_last_one_wrote() -> None:
    """So a daemon that dies in between is started again in the world before."""
    done: list[Any] = []

    async def enters(*told: Any) -> None:
        await asyncio.sleep(0)
        done.append(told)

    def persist_all(records: Sequence[Any]) -> None:
        done.append("journalled")

    rest = cast(Any, None)
    records, keeper = SimpleNamespace(persist_all=persist_all), SimpleNamespace(enters=enters)
    talk = cast(Any, SimpleNamespace(events=SimpleNamespace(settled=lambda: done.append("told"))))
    perform = Performers(talk, cast(Any, records), rest, rest, cast(Any, keeper), rest, rest, rest)
    asyncio.run(perform.persist([e.Persist("world", world(7, "new"))]))
    assert done == [("job-1", 7, (NODE,)), "told", "journalled"]


FORGOTTEN = JobRecord(JobId("a-1"), 1, {}, "archive", "finished", forgotten=True)


class Full:
    """A journal on a disk that refuses until somebody has made room, and who makes it."""

    def __init__(self, code: int = errno.ENOSPC) -> None:
        self.error: OSError | None = OSError(code, "it refuses")
        self.done: list[Any] = []
        self.told = SimpleNamespace(events=SimpleNamespace(settled=bool))

    def persist_all(self, records: Sequence[Any]) -> None:
        if self.error is not None:
            raise DiskError("journal: it refuses") from self.error
        self.done += [record for _, record in records]

    async def make_room(self, records: Sequence[JobRecord]) -> None:
        self.done.append("room")
        self.error = None

    def forget(self, records: Sequence[JobRecord]) -> None:
        self.done += [("forget", record.id) for record in records]

    def persist(self, record: JobRecord) -> None:
        rest, own = cast(Any, None), cast(Any, self)
        perform = Performers(cast(Any, self.told), own, rest, rest, rest, own, rest, rest)
        asyncio.run(perform.persist([e.Persist("job", record)]))


def test_a_job_is_forgotten_on_a_full_disk_once_its_files_are_gone() -> None:
    """A daemon that ended of that could remove nothing any more."""
    disk = Full()
    disk.persist(FORGOTTEN)
    assert disk.done == ["room", FORGOTTEN, ("forget", "a-1")]


@pytest.mark.parametrize(
    ("code", "forgotten"), [(errno.ENOSPC, False), (errno.EIO, True), (errno.EROFS, True)]
)
def test_nothing_goes_for_another_record_or_for_a_disk_that_is_broken(
    code: int, forgotten: bool
) -> None:
    disk = Full(code)
    with pytest.raises(DiskError):
        disk.persist(replace(FORGOTTEN, forgotten=forgotten))
    assert disk.done == []
