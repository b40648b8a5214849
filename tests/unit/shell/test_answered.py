"""Whoever waits for an answer gets one, also after a failure that nobody has thought of."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticd.core.words import effects as e
from elasticd.core.words.records import JobRecord
from elasticd.core.words.requests.every import REQUESTS
from elasticd.ipc.frames import Decoder
from elasticd.settings.places import SOCKET_NAME
from elasticd.shell.assembly.endings import Endings
from elasticd.shell.control.jobsfolder import ACCEPTED_NAME
from elasticd.shell.control.notedids import NotedIds
from elasticd.shell.control.server import ControlServer
from tests.unit.shell.storage.storednode import JOB, SPEC, Node, manifest_of, stamp_of
from tests.unit.shell.test_tasks import Told

WAIT = 20.0


def fail(*args: Any, **named: Any) -> Any:
    raise LookupError("planted")


async def bound(work: Any) -> Any:
    async with asyncio.timeout(WAIT):
        return await work


def commit(node: Node) -> None:
    node.states.keep_manifest = fail  # type: ignore[method-assign]
    node.states.commit_manifest(e.CommitManifest(JOB, manifest_of(1)))


def state(node: Node) -> None:
    node.states._checkpoint_files = fail  # type: ignore[method-assign]
    world = SimpleNamespace(job=JOB, generation=1, manifest=None)
    node.states.fetch_state(cast(Any, SimpleNamespace(world=world, wanted=None, careful=False)))


def ahead(node: Node) -> None:
    node.states._neighbours = cast(Any, None)
    effect = SimpleNamespace(job=JOB, generation=1, serial=3, wanted=None, trainer=1)
    node.states.prepare_state(cast(Any, effect))


def shards(node: Node) -> None:
    node.states.copies.pull = fail  # type: ignore[method-assign]
    effect = SimpleNamespace(
        job=JOB, step=1, stamp=stamp_of(1), count=2, shards=(0,), sources=(), report=None
    )
    node.states.fetch_shards(cast(Any, effect))


def files(node: Node) -> None:
    node.states.archives._work_folder = fail
    node.states.ensure_archive(cast(Any, SimpleNamespace(job=SimpleNamespace(id=JOB))))


def output(node: Node) -> None:
    archives = node.states.archives
    archives._trusted.add(JOB)
    archives._work_folder(JOB).mkdir(parents=True)
    archives.prepare = fail
    node.states.ensure_archive(cast(Any, SimpleNamespace(job=SimpleNamespace(id=JOB))))


@pytest.mark.parametrize(
    ("begin", "answer"),
    [
        (commit, e.ManifestKept),
        (state, e.StateFailed),
        (ahead, e.PrepareFailed),
        (shards, e.ShardsFetched),
        (files, e.ArchiveReady),
    ],
)
def test_the_control_plane_hears_how_it_went(
    begin: Callable[[Node], None], answer: type[Any], tmp_path: Path
) -> None:
    async def main() -> None:
        told, node = Told(), Node(tmp_path)
        node.records[JOB] = JobRecord(JOB, 1, SPEC, "", "running")
        begin(node)
        event = await bound(node.reported.get())
        assert isinstance(event, answer) and not getattr(event, "ok", False)
        assert told.failures.count == 1

    asyncio.run(main())


def test_a_trainer_starts_all_the_same_if_output_can_not_be_brought(tmp_path: Path) -> None:
    async def main() -> None:
        told, node = Told(), Node(tmp_path)
        output(node)
        assert await bound(node.reported.get()) == e.ArchiveReady(JOB, True, "")
        assert told.failures.count == 1

    asyncio.run(main())


def test_the_end_of_a_process_is_told_though_the_disk_can_not_be_looked_at() -> None:
    async def main() -> None:
        told, over = Told(), asyncio.Queue[Any]()
        endings = Endings(
            Path("home"), lambda *end: over.put_nowait(end), fail, lambda child: None, fail
        )
        endings.add(cast(Any, "A"), 1)
        assert await bound(over.get()) == ("A", 1)
        assert told.failures.count == 1

    asyncio.run(main())


def test_a_client_that_can_not_be_read_holds_no_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unreadable(Decoder):
        feed = fail

    async def main() -> None:
        told = Told()
        server = ControlServer(tmp_path, dict.fromkeys(REQUESTS.kinds, fail))
        await server.start()
        with contextlib.chdir(tmp_path):
            reader, writer = await asyncio.open_unix_connection(SOCKET_NAME)
        monkeypatch.setattr("elasticd.shell.control.server.Decoder", Unreadable)
        writer.write(b"anything")
        assert await bound(reader.read()) == b""
        assert told.failures.count == 1
        writer.close()
        await server.close()

    asyncio.run(main())


def test_noted_ids_may_be_anything(tmp_path: Path) -> None:
    path = tmp_path / ACCEPTED_NAME
    path.write_text("5")
    noted = NotedIds(path)
    noted.read()
    assert noted.get("5") is None
