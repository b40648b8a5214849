"""What ``logs`` hands out of a time: nothing that was printed before it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticd.core.node import Node
from elasticd.core.words.bulk import WantLog, WantLogStart
from elasticd.core.words.requests.logs import LogCut, LogUnread, ReadLogs
from elasticd.errors import OperationError
from elasticd.shell.children.logspan import LogSpan, Marks, tail_start
from elasticd.shell.control import logdesk
from elasticd.shell.control.logdesk import LogDesk
from elasticd.shell.control.server import Stream
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.eventreading import EventReading
from elasticd.shell.storage.states import States
from elasticd.types import JobId, NodeId

JOB = JobId("j")
A, B = NodeId("a"), NodeId("b")
OTHERS = b"what b printed\n"


@pytest.fixture(autouse=True)
def followed_without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes on whenever somebody looks at it."""
    monkeypatch.setattr(logdesk, "_FOLLOW_SECONDS", 0.0)


@dataclass
class Cluster:
    """One node. Its trainer prints a line whenever somebody looks at the clock, and the daemon
    has noted the length of the log never: as late as it may be. The job ends after ten lines."""

    time: float = 0.0
    printed: bytes = b""
    said: str = ""
    unread: dict[NodeId, str] = field(default_factory=dict)
    """What was said to be unread."""
    ranks: tuple[NodeId, ...] = (A,)
    before: tuple[NodeId, ...] = ()
    """Of the world before."""
    living: tuple[NodeId, ...] = (A,)
    reached_at: float = inf
    """When the link to the others is there again."""
    records: dict[JobId, Any] = field(default_factory=dict)
    prints: bytes = b""
    """What the trainer prints besides, whenever the log is read."""
    removed: int = 0
    removes: int = 0
    """So many bytes go from the beginning of the log when it is read first."""
    read_bytes: int = 0
    left_out: list[str] = field(default_factory=list)
    others: bytes = OTHERS
    marks: dict[NodeId, Marks] = field(default_factory=lambda: {A: (), B: ()})
    told: list[int | None] = field(default_factory=list)
    """The places that were said."""
    breaks: bool = False
    """What the other node printed can't be read after all."""

    def now(self) -> float:
        self.time += 1
        if self.time <= 10:
            self.printed += b"%d\n" % self.time
        self.records[JOB] = SimpleNamespace(id=JOB, ended=self.time >= 10)
        return self.time

    async def last_members(self, job: JobId, least: int = 1) -> list[str]:
        worlds = (self.ranks, self.before)
        return list(next((each for each in worlds if len(each) >= least), self.ranks))

    def reaches(self, node: NodeId) -> bool:
        return self.time >= self.reached_at

    async def fetch(self, node: NodeId, wanted: WantLog | WantLogStart, fd: int) -> None:
        if isinstance(wanted, WantLogStart):
            marks = self.marks[B] if wanted.marks else ()
            text = LogSpan(0, len(self.others), "", marks).encoded() if marks else b"0"
        elif self.breaks:
            raise OperationError("it is gone")
        else:
            text = self.others[wanted.offset :]
        os.pwrite(fd, text, 0)

    async def log_span(
        self, job: JobId, since: float, tail: int | None, marked: bool = False
    ) -> LogSpan:
        end, left_out = len(self.printed), f"{self.removed} bytes" if self.removed else ""
        if tail is None:
            return LogSpan(self.removed, end, left_out, self.marks[A] if marked else ())
        found = tail_start(self.read, self.removed, end, tail)
        assert found is not None
        return LogSpan(found[0], end)

    async def log_bytes(self, job: JobId, offset: int, limit: int, counted: bool) -> bytes:
        self.printed += self.prints
        self.removed, self.removes = self.removed + self.removes, 0
        return self.read(offset, limit)

    def read(self, offset: int, limit: int) -> bytes:
        self.read_bytes += limit
        return self.printed[offset : offset + limit] if offset >= self.removed else b""

    async def send(self, piece: Any) -> None:
        if isinstance(piece, LogUnread):
            self.unread[piece.node] = piece.unread
        elif isinstance(piece, LogCut):
            self.left_out.append(piece.left_out)
        else:
            self.said += piece.text
            self.told.append(piece.at)

    def logs(self, request: ReadLogs) -> str:
        self.now()
        jobs = SimpleNamespace(known=self.records.__getitem__)
        nodes = SimpleNamespace(records=dict.fromkeys((A, B)))
        node = SimpleNamespace(
            me=A,
            tables=SimpleNamespace(jobs=jobs, nodes=nodes),
            records=self.records,
            liveness=SimpleNamespace(living=lambda: [*self.living]),
        )
        desk = LogDesk(
            cast(Node, node),
            cast(States, self),
            cast(EventReading, self),
            cast(Neighbours, self),
            self.now,
        )
        asyncio.run(desk.logs(request, cast(Stream, self)))
        return self.said


@pytest.mark.parametrize("tail", [None, 3])
@pytest.mark.parametrize("follow", [False, True])
def test_nothing_has_been_printed_since_a_time_to_come(tail: int | None, follow: bool) -> None:
    assert Cluster(time=8).logs(ReadLogs(JOB, None, follow, tail, since=1000.0)) == ""


def test_what_is_printed_from_then_on_is_followed() -> None:
    cluster = Cluster(time=5)
    said = cluster.logs(ReadLogs(JOB, follow=True, since=8.0))
    assert said.endswith("10\n") and cluster.time > 8


def test_of_a_time_that_has_been_all_is_handed_out_that_may_be_later() -> None:
    assert Cluster(time=8).logs(ReadLogs(JOB, since=1.0)) == "9\n10\n"


@pytest.mark.parametrize("follow", [False, True])
def test_whose_log_can_not_be_read_is_told(follow: bool) -> None:
    cluster = Cluster(ranks=(A, B), living=(A, B))
    assert OTHERS.decode() not in cluster.logs(ReadLogs(JOB, follow=follow))
    assert cluster.unread == {B: "b can't be reached"}


@pytest.mark.parametrize("follow", [False, True])
def test_a_rank_whose_node_is_gone_is_told(follow: bool) -> None:
    cluster = Cluster(ranks=(A, B))
    cluster.logs(ReadLogs(JOB, follow=follow))
    assert cluster.unread == {B: "it is not there"}


def test_the_end_of_a_log_that_is_followed_is_waited_for() -> None:
    cluster = Cluster(ranks=(A, B), living=(A, B), reached_at=14.0)
    assert OTHERS.decode() in cluster.logs(ReadLogs(JOB, follow=True))
    assert not cluster.unread


def test_of_one_rank_no_other_is_told() -> None:
    cluster = Cluster(ranks=(A, B))
    cluster.logs(ReadLogs(JOB, rank=0))
    assert not cluster.unread


@pytest.mark.parametrize("ranks", [(A,), (A, B), (B, A)])
def test_of_one_node_all_is_told_whatever_its_rank(ranks: tuple[NodeId, ...]) -> None:
    cluster = Cluster(ranks=ranks, living=(A, B), reached_at=0.0)
    assert cluster.logs(ReadLogs(JOB, node=B)) == OTHERS.decode() and not cluster.unread


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("ranks", [(A,), (A, B)])
def test_of_one_node_that_is_gone_that_is_told(follow: bool, ranks: tuple[NodeId, ...]) -> None:
    cluster = Cluster(ranks=ranks)
    assert cluster.logs(ReadLogs(JOB, follow=follow, node=B)) == ""
    assert cluster.unread == {B: "it is not there"}


def test_a_node_that_never_was_is_refused() -> None:
    with pytest.raises(OperationError, match="there is no node c"):
        Cluster().logs(ReadLogs(JOB, node=NodeId("c")))


@pytest.mark.parametrize("follow", [False, True])
def test_the_last_lines_are_read_from_the_end(follow: bool) -> None:
    cluster = Cluster(time=10, printed=b"line\n" * 1_000_000)
    assert cluster.logs(ReadLogs(JOB, tail=2, follow=follow)) == "line\nline\n"
    assert cluster.read_bytes < 2_000_000


def test_of_a_follower_only_what_was_there_is_cut_to_its_last_lines() -> None:
    cluster = Cluster(time=6)
    assert cluster.logs(ReadLogs(JOB, tail=1, follow=True)) == "8\n9\n10\n"


def test_who_goes_on_is_shown_what_was_not_shown_before() -> None:
    cluster = Cluster(time=10, printed="one\ntwö\n".encode())
    assert cluster.logs(ReadLogs(JOB, follow=True, tail=0, past={A: 4})) == "twö\n"
    assert cluster.told == [4, 9]
    beyond = Cluster(time=10, printed=b"one\n")
    assert beyond.logs(ReadLogs(JOB, follow=True, past={A: 99})) == ""
    gone = Cluster(time=10, printed=b"one\ntwo\nsix\n", removed=8)
    assert gone.logs(ReadLogs(JOB, follow=True, past={A: 4})) == "six\n"
    assert gone.left_out == ["4 bytes of it went before they were read"]


def test_of_a_letter_that_is_cut_no_place_is_said() -> None:
    cluster = Cluster(time=10, printed="two\nö".encode()[:5])
    assert cluster.logs(ReadLogs(JOB, follow=True, past={})) == "two\n"
    assert cluster.told == [0, 4]


def test_where_no_places_are_asked_for_none_are_said() -> None:
    cluster = Cluster(time=10, printed=b"one\n")
    cluster.logs(ReadLogs(JOB))
    assert cluster.told == [None]


def test_who_comes_later_is_followed_from_its_beginning() -> None:
    cluster = Cluster(time=8, ranks=(A,), living=(A,), reached_at=0.0)

    class Growing(list[NodeId]):
        def __iter__(self) -> Any:
            return iter((A, B) if cluster.time >= 10 else (A,))

    cluster.living = Growing()  # type: ignore[assignment]
    assert OTHERS.decode() in cluster.logs(ReadLogs(JOB, tail=0, follow=True))


def test_a_log_that_grows_faster_than_it_is_read_has_an_end() -> None:
    cluster = Cluster(time=10, printed=b"before\n", prints=b"more\n" * 100)
    assert cluster.logs(ReadLogs(JOB)) == "before\n"


def test_what_has_gone_of_a_log_is_told() -> None:
    cluster = Cluster(time=10, printed=b"gone\nleft\n", removed=5)
    assert cluster.logs(ReadLogs(JOB)) == "left\n"
    assert cluster.left_out == ["5 bytes"]


def test_what_goes_before_it_is_read_is_told() -> None:
    cluster = Cluster(time=10, printed=b"gone\nleft\n", removes=5)
    cluster.logs(ReadLogs(JOB))
    assert cluster.left_out == ["5 bytes of it went before they were read"]


def test_an_earlier_daemon_that_does_not_say_where_its_log_ends_is_read_to_its_end() -> None:
    cluster = Cluster(time=10, ranks=(A, B), living=(A, B), reached_at=0.0)
    assert OTHERS.decode() in cluster.logs(ReadLogs(JOB))


def two(**more: Any) -> Cluster:
    """Both have printed in turns; nobody has noted when a printed its last line."""
    return Cluster(
        time=10, ranks=(A, B), living=(A, B), reached_at=0.0, printed=b"a1\na3\na5\n",
        others=b"b2\nb4\n", marks={A: ((1.0, 3), (3.0, 6)), B: ((2.0, 3), (4.0, 6))}, **more,
    )  # fmt: skip


@pytest.mark.parametrize("follow", [False, True])
def test_what_several_nodes_printed_is_in_the_order_of_time(follow: bool) -> None:
    assert two().logs(ReadLogs(JOB, follow=follow)).split() == ["a1", "b2", "a3", "b4", "a5"]


def test_what_nobody_has_printed_in_between_comes_at_once() -> None:
    cluster = two()
    cluster.marks = {A: ((1.0, 3), (1.5, 6), (1.7, 9)), B: ((2.0, 3),)}
    pieces: list[str] = []
    whole = cluster.send

    async def send(piece: Any) -> None:
        pieces.append(piece.text)
        await whole(piece)

    cluster.send = send  # type: ignore[method-assign]
    cluster.logs(ReadLogs(JOB))
    assert pieces == ["a1\na3\na5\n", "b2\n", "b4\n"]


def test_nobody_waits_for_a_node_that_breaks() -> None:
    cluster = two(breaks=True)
    assert cluster.logs(ReadLogs(JOB)).split() == ["a1", "a3", "a5"]
    assert cluster.unread == {B: "it is gone"}


@pytest.mark.parametrize(
    ("least", "members"), [(1, ["a"]), (2, ["a", "c"]), (3, ["a", "b", "c"]), (4, ["a"])]
)
def test_who_had_a_rank_last_is_found_in_older_worlds(least: int, members: list[str]) -> None:
    class Told:
        async def lasting(self, job: JobId) -> list[dict[str, Any]]:
            worlds = ["b", "a"], ["a", "b", "c"], ["a", "c"], ["a"]
            told = [{"kind": "world_formed", "members": each} for each in worlds]
            return [*told, {"kind": "node_dropped", "members": ["b", "c"]}]

    told = cast(EventReading, Told())
    assert asyncio.run(EventReading.last_members(told, JOB, least)) == members


@pytest.mark.parametrize("away", [False, True])
def test_of_a_rank_that_is_gone_its_nodes_log_is_told(away: bool) -> None:
    cluster = Cluster(before=(A, B), living=(A,) if away else (A, B), reached_at=0.0)
    if away:
        cluster.reached_at = inf
    said = cluster.logs(ReadLogs(JOB, rank=1))
    assert (said, cluster.unread) == (
        ("", {B: "b can't be reached"}) if away else (OTHERS.decode(), {})
    )


def test_of_one_rank_nothing_is_put_in_order() -> None:
    cluster = two()
    assert cluster.logs(ReadLogs(JOB, rank=0)).split() == ["a1", "a3", "a5"]


def test_a_rank_is_waited_for_until_there_is_a_world() -> None:
    cluster = Cluster(ranks=())

    async def last_members(job: JobId, least: int = 1) -> list[str]:
        return [A] if cluster.now() >= 5 else []

    cluster.last_members = last_members  # type: ignore[method-assign]
    assert cluster.logs(ReadLogs(JOB, rank=0, follow=True)).split()[-1] == "10"
    with pytest.raises(OperationError, match="has had no rank 1"):
        Cluster().logs(ReadLogs(JOB, rank=1, follow=True))
    with pytest.raises(OperationError, match="has had no rank 0"):
        Cluster(ranks=()).logs(ReadLogs(JOB, rank=0))
