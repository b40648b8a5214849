"""What is too long, or too new for who hears it, is not sent, and never ends the daemon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from elasticd.core.words import effects as e
from elasticd.core.words.connections import ASIDE, HaveEvents, PutOut, TakeEvents
from elasticd.core.words.frames import Frame, decode_frame
from elasticd.core.words.hearers import UNSAID
from elasticd.core.words.records import JobRecord
from elasticd.core.words.tables import Jobs
from elasticd.core.words.versions import NEWEST
from elasticd.ipc.frames import MAX_FRAME_BYTES, Decoder, encode
from elasticd.settings.config import NodeConfig
from elasticd.shell.assembly.membership import Others, TrustedMembers
from elasticd.shell.assembly.talk import Talk
from elasticd.shell.complaints import Complaints
from elasticd.shell.network.callbacks import Callbacks
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.storage import papers
from elasticd.shell.storage.eventlog import EventLog
from elasticd.trust import renewal
from elasticd.trust.names import last_serial
from elasticd.trust.revoked import Revoked
from elasticd.types import JobId, NodeId
from tests.members import member

OTHER = NodeId("other")


class FakePeers:
    """Encodes as the real ones do."""

    def __init__(self, *_: Any) -> None:
        self.sent: list[dict[str, Any]] = []
        self.complain = Complaints("peers")
        self.protocol = NEWEST
        self.call: Callbacks | None = None
        self.own: tuple[str, ...] = ()
        self.at: list[tuple[NodeId, tuple[str, ...]]] = []
        self.others: list[tuple[str, ...]] = []

    def others_than(self, node: NodeId) -> tuple[str, ...]:
        return (f"where others than {node} are",)

    def are_at(self, others: tuple[str, ...]) -> None:
        self.others.append(others)

    def moved(self, addresses: tuple[str, ...]) -> None:
        self.own = addresses

    def addresses_of(self, node: NodeId) -> tuple[str, ...]:
        return ()

    def is_at(self, node: NodeId, addresses: tuple[str, ...]) -> None:
        self.at.append((node, addresses))

    def connected(self) -> list[NodeId]:
        return [OTHER]

    def protocol_of(self, node: NodeId) -> int:
        return self.protocol

    def send(self, node: NodeId, message: dict[str, Any]) -> None:
        self.sent += Decoder().feed(encode(message))


def membership_of(talk: Callable[[], Talk], home: Path, settings: NodeConfig) -> TrustedMembers:
    papers.write(home, member("me"))
    shown = Credentials(papers.read(home), *papers.shown(home), Revoked())
    others = Others(talk, tuple, tuple, tuple, lambda _: None, lambda _: None)
    return TrustedMembers(home, settings, shown, others)


def talk_of(peers: FakePeers, folder: Path) -> Talk:
    def made(call: Callbacks) -> Any:
        peers.call = call
        return peers

    settings = NodeConfig(node_id="me")
    talk = Talk(
        settings, made, EventLog(folder, "me/1"),
        lambda _: None, lambda _: None,  # type: ignore[arg-type, return-value]
        membership_of(lambda: talk, folder, settings),
    )  # fmt: skip
    return talk


@dataclass(frozen=True)
class Newer:
    """A message that a version to come has added."""

    since: ClassVar = NEWEST + 1
    text: str


def test_all_are_told_where_this_node_is_now_and_it_hears_where_they_are(tmp_path: Path) -> None:
    peers = FakePeers()
    talk = talk_of(peers, tmp_path)
    own = ("10.0.0.1:1", "10.1.0.1:1")
    talk.moved(own)
    (sent,) = peers.sent
    assert peers.own == own and (sent["address"], tuple(sent["addresses"])) == (own[0], own)
    assert peers.call is not None
    peers.call.message(OTHER, {**sent, "addresses": ["10.0.0.2:1"]})
    del sent["addresses"]  # as the version before says it
    peers.call.message(OTHER, sent)
    assert peers.at == [(OTHER, ("10.0.0.2:1",))]


def test_who_connects_hears_where_others_are(tmp_path: Path) -> None:
    peers = FakePeers()
    talk = talk_of(peers, tmp_path)
    assert peers.call is not None
    peers.call.connected(OTHER, "boot", "10.0.0.2:1")
    info = peers.sent[0]
    assert info["others"] == [f"where others than {OTHER} are"]
    peers.call.message(OTHER, info)
    assert peers.others == [tuple(info["others"])] and talk.infos[OTHER].others == ()


def test_what_a_node_tells_behind_what_it_had_is_news(tmp_path: Path) -> None:
    async def main() -> None:
        peers = FakePeers()
        talk = talk_of(peers, tmp_path)
        assert peers.call is not None
        had, made = ({"origin": "other/7", "number": number, "time": 1.0} for number in (2, 3))
        peers.call.connected(OTHER, "7", "h:1")
        peers.call.message(OTHER, ASIDE.encode(HaveEvents({"other/7": 2})))
        peers.call.moved(OTHER, "7", "h:2")
        peers.call.message(OTHER, ASIDE.encode(TakeEvents((had, made))))
        assert [talk.events.news.has(each) for each in (had, made)] == [False, True]

    asyncio.run(main())


@pytest.mark.parametrize("protocol", [NEWEST, NEWEST + 1])
def test_a_message_goes_to_those_only_who_know_it(tmp_path: Path, protocol: int) -> None:
    """Its place goes to the others: what is behind it in the stream must not wait for ever."""
    peers = FakePeers()
    talk = talk_of(peers, tmp_path)
    peers.protocol = protocol
    assert peers.call is not None
    peers.call.connected(OTHER, "boot", "h:1")
    peers.sent.clear()
    frame = Frame(("a", "b"), 1, 1, 1, 1, 0, cast(Any, Newer("news")))
    talk.transmit(e.Transmit(OTHER, frame))
    (sent,) = peers.sent
    if protocol == NEWEST:
        assert decode_frame(sent) == replace(frame, message=UNSAID)
    else:
        assert sent["message"] == {"t": "Newer", "text": "news"}


def test_of_a_message_that_is_too_long_only_its_place_is_sent(tmp_path: Path) -> None:
    peers = FakePeers()
    talk = talk_of(peers, tmp_path)
    spec = {"job": {"name": "x"}, "more": ["x" * 1_000_000] * (MAX_FRAME_BYTES // 1_000_000 + 1)}
    long = Jobs((JobRecord(JobId("x-1"), 1, spec, "digest", "queued"),), ())
    for number, message in enumerate((long, UNSAID), start=1):
        talk.transmit(e.Transmit(OTHER, Frame(("a", "b"), 1, number, number, 1, 0, message)))
    frames = [decode_frame(each) for each in peers.sent]
    assert [(frame.number, frame.message) for frame in frames] == [(1, UNSAID), (2, UNSAID)]
    assert peers.complain.count == 1
    assert peers.complain.last_reason.startswith("Jobs to other: not sent: a frame of")


class ShownPeers(FakePeers):
    serial = 0

    def serial_of(self, node: NodeId) -> int:
        return self.serial

    def connected(self) -> list[NodeId]:
        return []


@pytest.mark.parametrize("field", ["renew", "refuse"])
def test_one_bad_word_has_no_certificate_refused_that_is_yet_to_be_made(
    tmp_path: Path, field: str
) -> None:
    async def main() -> None:
        peers = ShownPeers()
        talk = talk_of(peers, tmp_path)
        trusted = talk.trusted
        assert peers.call is not None and isinstance(trusted, TrustedMembers)
        far = last_serial(time.time() + 5e7)
        for _ in range(2):
            word = PutOut({}, **{field: renewal.word_of(far)})
            peers.call.message(OTHER, ASIDE.encode(word))
            assert (trusted.known is not None) == (peers.serial > far)
            peers.serial = far + 1  # the authority has made such a one, whatever its clock
        await trusted.close()

    asyncio.run(main())
