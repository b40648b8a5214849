"""Where the other members were last, as a home keeps it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from elasticd.shell.storage import papers, whereabouts
from elasticd.shell.storage.whereabouts import FILE_NAME, MOST_ADDRESSES, MOST_NODES, Whereabouts
from elasticd.types import NodeId
from tests.members import member

B, C = NodeId("b"), NodeId("c")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    papers.write(tmp_path, member("a"))
    return tmp_path


def file_of(home: Path) -> Path:
    return papers.folder_of(home) / FILE_NAME


async def written(one: Whereabouts) -> None:
    await one._tasks.ended()


def test_the_next_daemon_knows_where_the_others_were(home: Path) -> None:
    async def main() -> None:
        first = Whereabouts(home)
        assert first.addresses() == []
        first.note(B, ("10.0.0.2:7070", "10.1.0.2:7070"))
        first.note(C, ())  # which isn't connected
        first.note(C, ("10.0.0.3:7070",))
        first.note(B, ("10.0.0.9:7070",))
        await written(first)
        again = Whereabouts(home)
        assert again.addresses() == ["10.0.0.9:7070", "10.0.0.3:7070"]
        assert papers.is_private(home)
        again.note(B, ("10.0.0.9:7070",))
        assert not again._writing, "it is no news"

    asyncio.run(main())


def test_there_is_an_end_of_it(home: Path) -> None:
    async def main() -> None:
        one = Whereabouts(home)
        for number in range(2 * MOST_NODES):
            one.note(NodeId(f"n{number}"), tuple(f"10.{number}.0.{n}:1" for n in range(1, 17)))
        await written(one)
        assert len(json.loads(file_of(home).read_bytes())) == MOST_NODES
        for each in (one, Whereabouts(home)):
            assert len(each.addresses()) == MOST_ADDRESSES
            assert each.addresses()[0] == f"10.{2 * MOST_NODES - 1}.0.1:1"

    asyncio.run(main())


@pytest.mark.parametrize("data", ["", "[]", '{"b": 1}', '{"b": ["nowhere"]}', '{"b": [1]}'])
def test_a_damaged_file_says_nothing_and_stops_nobody(home: Path, data: str) -> None:
    file_of(home).write_text(data)
    with capture_logs() as said:
        assert whereabouts.read(home) == {}
    assert [each["log_level"] for each in said] == ["warning"]


def test_a_disk_that_refuses_is_asked_again_with_the_next_news(home: Path) -> None:
    async def main() -> None:
        one = Whereabouts(home)
        file_of(home).mkdir()
        one.note(B, ("10.0.0.2:7070",))
        await written(one)
        file_of(home).rmdir()
        one.note(C, ("10.0.0.3:7070",))
        await written(one)
        assert whereabouts.read(home).keys() == {B, C}

    asyncio.run(main())
