"""A node measures its links at each address of a peer, and gives way to training."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from elasticd.core.words.bulk import OfLinks, WantDoor, WantLinks
from elasticd.core.words.codec import to_plain
from elasticd.core.words.records import Path
from elasticd.errors import OperationError
from elasticd.preflight.links import LinkSeen
from elasticd.shell.control.linkdesk import MAX_PATHS, LinkDesk
from elasticd.shell.network.neighbours import Neighbours
from elasticd.types import JobId, NodeId

ME, PEER = NodeId("me"), NodeId("peer")
WORD = "0" * 32
JOB = JobId("lm-1-aaaa")


class Desk:
    """A node with two addresses, whose peer says what a test wants."""

    def __init__(self, answer: Callable[[OfLinks], Any], knock: Any = None) -> None:
        self.answer, self.jobs = answer, list[JobId]()
        self.asked: list[tuple[NodeId, OfLinks]] = []
        self.knocked: list[tuple[str, int]] = []
        self.me, self.hosts = ME, ["10.0.0.1"]
        self.paths = [Path(PEER, host, healthy=True) for host in ("10.0.0.2", "10.1.0.2")]

        async def met(host: str, port: int, word: bytes) -> tuple[float, float]:
            self.knocked.append((host, port))
            if knock is not None:
                raise knock
            return 1e9, 0.001

        self.desk = LinkDesk(
            cast(Neighbours, self), lambda node: self.paths, lambda: self.hosts,
            lambda: self.jobs, met, lambda host, word: 20_003,
        )  # fmt: skip

    async def fetch(self, node: NodeId, wanted: OfLinks, fd: int, limit: int) -> int:
        self.asked.append((node, wanted))
        answer = self.answer(wanted)
        if isinstance(answer, Exception):
            raise answer
        return os.write(fd, json.dumps(answer).encode())

    def measured(self, node: NodeId = ME, peer: NodeId = PEER, busy: bool = False) -> list[Any]:
        return asyncio.run(self.desk.measured(node, peer, busy=busy))

    def served(self, wanted: OfLinks) -> Any:
        async def serve() -> bytes:
            fd = await self.desk.serve(wanted)
            try:
                return os.pread(fd, 1 << 16, 0)
            finally:
                os.close(fd)

        return json.loads(asyncio.run(serve()))


def test_each_address_of_a_peer_is_measured() -> None:
    desk = Desk(lambda wanted: {"port": 20007})
    assert desk.measured() == [
        LinkSeen(ME, PEER, host, 1e9, 0.001) for host in ("10.0.0.2", "10.1.0.2")
    ]
    assert desk.knocked == [("10.0.0.2", 20007), ("10.1.0.2", 20007)]
    words = {wanted.word for _, wanted in desk.asked if isinstance(wanted, WantDoor)}
    assert len(words) == 2, "each door has its own"
    desk.paths = desk.paths * 5
    assert len(desk.measured()) == MAX_PATHS


def test_another_node_measures_its_own() -> None:
    other = LinkSeen(NodeId("other"), PEER, "10.0.0.2", 5e8, 0.002)
    desk = Desk(lambda wanted: to_plain((other,)))
    assert desk.measured(NodeId("other"), busy=True) == [other] and desk.knocked == []
    assert desk.asked == [(NodeId("other"), WantLinks(PEER, busy=True))]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (OperationError("other is not connected"), "other is not connected"),
        (TimeoutError(), "other has not measured it in 30 s"),
        ([{"node": 5}], "expected str"),
        ("x", "expected a list"),
    ],
)
def test_one_that_tells_nothing_is_an_error_of_that_link(answer: Any, said: str) -> None:
    (found,) = Desk(lambda wanted: answer).measured(NodeId("other"))
    assert said in found.error and (found.node, found.peer, found.host) == ("other", PEER, "")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (OperationError("8 links to it are being measured"), "opens no port at 10.0.0.2: 8 links"),
        ({}, "opens no port"),
        ([], "opens no port"),
        ({"port": "x"}, "opens no port"),
    ],
)
def test_a_door_that_stays_shut_is_no_network_fault(answer: Any, said: str) -> None:
    found = Desk(lambda wanted: answer).measured()[0]
    assert said in found.error and found.host == ""


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (TimeoutError(), "nobody answers within 5 s"),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
    ],
)
def test_a_port_that_is_not_reached_is_the_links_fault(failure: OSError, said: str) -> None:
    found = Desk(lambda wanted: {"port": 20007}, failure).measured()
    assert [said in each.error for each in found] == [True, True]
    assert [each.host for each in found] == ["10.0.0.2", "10.1.0.2"]


def test_a_node_that_trains_measures_nothing_unless_it_is_told_to() -> None:
    desk = Desk(lambda wanted: {"port": 20007})
    desk.jobs = [JOB]
    assert desk.measured() == [LinkSeen(ME, PEER, trains=JOB)] and desk.asked == []
    assert desk.served(WantDoor("10.0.0.1", WORD)) == {"trains": JOB}
    assert [each.trains for each in desk.measured(busy=True)] == ["", ""]


def test_neither_does_one_whose_peer_trains() -> None:
    desk = Desk(lambda wanted: {"trains": JOB})
    assert [each.trains for each in desk.measured()] == [JOB, JOB] and desk.knocked == []


def test_nodes_that_are_not_connected() -> None:
    desk = Desk(lambda wanted: {})
    desk.paths = []
    assert desk.measured() == [LinkSeen(ME, PEER, error="their daemons are not connected")]


def test_what_others_ask_for() -> None:
    desk = Desk(lambda wanted: {"port": 20007})
    found = desk.served(WantLinks(PEER))
    assert [each["host"] for each in found] == ["10.0.0.2", "10.1.0.2"]
    assert desk.served(WantDoor("10.0.0.1", WORD)) == {"port": 20_003}


@pytest.mark.parametrize(
    ("door", "said"),
    [
        (WantDoor("0.0.0.0", WORD), "0.0.0.0 is no address of me"),
        (replace(WantDoor("10.0.0.1", ""), busy=True), "bad word"),
    ],
)
def test_doors_that_are_not_opened(door: WantDoor, said: str) -> None:
    with pytest.raises(OperationError, match=said):
        Desk(lambda wanted: {}).served(door)
