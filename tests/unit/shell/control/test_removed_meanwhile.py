"""A checkpoint goes for a newer one at each moment of ``checkpoints verify``, ``list`` and
``export``: that is neither damage nor an error."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticd.checkpoints.layout import final_name
from elasticd.checkpoints.manifest import Manifest, Shard
from elasticd.checkpoints.port import Problem
from elasticd.checkpoints.store import LocalStore
from elasticd.core.words.records import JobRecord
from elasticd.core.words.requests.checkpoints import (
    ListCheckpoints,
    OpenCheckpoint,
    VerifyCheckpoints,
)
from elasticd.errors import OperationError, StateError
from elasticd.shell.control import inventory
from elasticd.shell.control.inventory import Inventory
from elasticd.shell.control.server import Stream
from elasticd.shell.storage.pins import Pins
from elasticd.shell.storage.scratch import Scratch
from elasticd.shell.storage.states import States
from elasticd.types import NO_TAG, JobId, Lineage, NodeId, Stamp
from tests.unit.moments import Moment

JOB, ONE, TWO = JobId("job"), NodeId("one"), NodeId("two")
NODES = (ONE, TWO)
BYTES = b"four"
SHARD = Shard(0, len(BYTES), hashlib.blake2b(BYTES, digest_size=32).hexdigest())
SPEC = {
    "job": {"name": "job", "entrypoint": "train.py"},
    "batch": {"global": 8, "micro": 1},
    "train": {"steps": 100},
    "checkpoint": {"keep": 1},
}


def stamp_of(step: int) -> Stamp:
    return Stamp(f"{step:032x}"[::-1])


def fill(store: LocalStore, step: int) -> None:
    store.put_shard(JOB, step, stamp_of(step), 0, 1, [BYTES], SHARD.digest)
    where = (JOB, Lineage("line"), None, step, stamp_of(step), NO_TAG)
    store.commit(Manifest(*where, 80, 8, 1, (SHARD,), (NODES,), "00", 0.0))


def _contents(paths: list[str]) -> list[bytes]:
    return [Path(path).read_bytes() for path in paths]


class Watched:
    """A node's store; the moments of what it is asked are counted."""

    def __init__(self, store: LocalStore, moment: Moment) -> None:
        self._store, self._moment = store, moment

    def __getattr__(self, name: str) -> Callable[..., Any]:
        asked = getattr(self._store, name)

        def call(*arguments: Any) -> Any:
            with self._moment.counted():
                return asked(*arguments)

        return call


@dataclass
class Client:
    """Reads the files of an export as soon as they are named."""

    frames: list[dict[str, Any]] = field(default_factory=list)
    read: list[bytes] = field(default_factory=list)

    async def send(self, frame: dict[str, Any]) -> None:
        self.frames.append(frame)

    async def receive(self, seconds: float | None) -> dict[str, Any]:
        self.read = _contents([path for path, _ in self.frames[-1]["files"]])
        return {"done": True}


@dataclass
class Cluster:
    """Two nodes with the checkpoint of step 10. At a moment ``comes`` the one of step 20, for which
    each of ``removing`` removes that, unless it is in use there."""

    home: Path
    at: int
    removing: Collection[NodeId]
    client: Client = field(default_factory=Client)
    pins: Pins = field(default_factory=Pins)

    def __post_init__(self) -> None:
        self.stores = {node: LocalStore(self.home / node, node) for node in NODES}
        self.aside = {node: LocalStore(self.home / f"{node}-aside", node) for node in NODES}
        for node in NODES:
            self.stores[node].root.mkdir(parents=True)
            self.aside[node].root.mkdir()
            fill(self.stores[node], 10)
            fill(self.aside[node], 20)
        self.moment = Moment(self.at, self.comes)

    def comes(self) -> None:
        name = final_name(20, stamp_of(20))
        for node in NODES:
            os.rename(self.aside[node].folder(JOB) / name, self.stores[node].folder(JOB) / name)
        for node in self.removing:
            pins = self.pins if node == ONE else Pins()
            with pins.removal(JOB, 10, stamp_of(10)) as free:
                if free:
                    self.stores[node].remove(JOB, 10, stamp_of(10))

    def store_of(self, node: NodeId) -> Any:
        return Watched(self.stores[node], self.moment)

    async def pull_to(
        self, path: Path, found: Manifest, index: int, sources: tuple[NodeId, ...]
    ) -> None:
        self.copy(path, (JOB, found.step, found.stamp, index, found.count), sources)

    def copy(self, path: Path, shard: tuple[Any, ...], sources: tuple[NodeId, ...]) -> None:
        for node in sources:
            with (
                contextlib.suppress(StateError),
                self.store_of(node).open_shard(*shard) as file,
            ):
                path.write_bytes(file.read())
                return
        raise OperationError("no source has it")

    async def read(self, node: NodeId, *where: Any) -> list[Problem]:
        return cast(list[Problem], self.store_of(node).verify(*where))

    async def told(self, job: JobId, *kinds: str) -> list[dict[str, Any]]:
        return []

    def inventory(self) -> Inventory:
        states = SimpleNamespace(
            me=ONE, store=self.stores[ONE], store_of=self.store_of, pins=self.pins, copies=self
        )
        record = cast(JobRecord, SimpleNamespace(spec=SPEC))
        return Inventory(
            cast(States, states),
            lambda: NODES,
            lambda: NODES,
            lambda job: record,
            self.told,
            self.read,
            Scratch(self.home),
        )


Ask = Callable[[Inventory, Stream], Awaitable[Any]]


@pytest.fixture(params=[(ONE,), (TWO,), NODES], ids=["here", "there", "both"])
def at_each(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Ask], list[tuple[Any, Client]]]:
    """What a request answers, and what its client was sent."""
    monkeypatch.setattr(inventory, "_LOOK_SECONDS", 0.0)

    def run(ask: Ask) -> list[tuple[Any, Client]]:
        seen = []
        for at in itertools.count():
            cluster = Cluster(tmp_path / str(at), at, request.param)
            asked = cluster.inventory()

            async def story(
                asked: Inventory = asked, cluster: Cluster = cluster
            ) -> tuple[Any, Client]:
                return await ask(asked, cast(Stream, cluster.client)), cluster.client

            seen.append(asyncio.run(story()))
            asked.close()
            if not cluster.moment.came:
                return seen
        raise AssertionError

    return run


def test_verify_calls_nothing_damaged(at_each: Callable[[Ask], list[tuple[Any, Client]]]) -> None:
    for _, client in at_each(lambda asked, to: asked.verify(VerifyCheckpoints(JOB), to)):
        assert [frame for frame in client.frames[1:] if not frame["ok"]] == []


def test_list_has_always_one_that_is_whole(
    at_each: Callable[[Ask], list[tuple[Any, Client]]],
) -> None:
    for answer, _ in at_each(lambda asked, to: asked.show(ListCheckpoints(JOB), to)):
        assert answer["silent"] == {}
        assert {row["step"] for row in answer["checkpoints"] if row["consistent"]} & {10, 20}


@pytest.mark.parametrize("step", [None, 10])
def test_export_brings_a_whole_one(
    at_each: Callable[[Ask], list[tuple[Any, Client]]], step: int | None
) -> None:
    async def ask(asked: Inventory, to: Stream) -> str:
        try:
            await asked.open(OpenCheckpoint(JOB, step), to)
        except OperationError as error:
            return str(error)
        return ""

    for refused, client in at_each(ask):
        if refused:
            assert step == 10 and refused.startswith("there is no checkpoint of step 10")
        else:
            assert client.read == [BYTES]
            assert client.frames[-1]["checkpoint"]["step"] in ((10, 20) if step is None else (10,))
