"""In which order things are done that the control plane asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from elasticd.core.words import effects as e
from elasticd.shell.assembly.perform import Performers
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
