"""What is too long is not sent, and never ends the daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elasticd.core.words import effects as e
from elasticd.core.words.frames import Frame, decode_frame
from elasticd.core.words.records import JobRecord
from elasticd.core.words.tables import Jobs
from elasticd.ipc.frames import MAX_FRAME_BYTES, Decoder, encode
from elasticd.settings.config import NodeConfig
from elasticd.shell.assembly.talk import UNSAID, Talk
from elasticd.shell.complaints import Complaints
from elasticd.shell.storage.eventlog import EventLog
from elasticd.types import JobId, NodeId

OTHER = NodeId("other")


class FakePeers:
    """Encodes as the real ones do."""

    def __init__(self, *_: Any) -> None:
        self.sent: list[dict[str, Any]] = []
        self.complain = Complaints("peers")

    def send(self, node: NodeId, message: dict[str, Any]) -> None:
        self.sent += Decoder().feed(encode(message))


def test_of_a_message_that_is_too_long_only_its_place_is_sent(tmp_path: Path) -> None:
    peers = FakePeers()
    talk = Talk(
        NodeConfig(node_id="me"), lambda call: peers, EventLog(tmp_path, "me/1"),  # type: ignore[arg-type, return-value]
        lambda _: None, lambda _: None, lambda _: None,  # type: ignore[arg-type, return-value]
    )  # fmt: skip
    spec = {"job": {"name": "x"}, "more": ["x" * 1_000_000] * (MAX_FRAME_BYTES // 1_000_000 + 1)}
    long = Jobs((JobRecord(JobId("x-1"), 1, spec, "digest", "queued"),), ())
    for number, message in enumerate((long, UNSAID), start=1):
        talk.transmit(e.Transmit(OTHER, Frame(("a", "b"), 1, number, number, 1, 0, message)))
    frames = [decode_frame(each) for each in peers.sent]
    assert [(frame.number, frame.message) for frame in frames] == [(1, UNSAID), (2, UNSAID)]
    assert peers.complain.count == 1
    assert peers.complain.last_reason.startswith("Jobs to other: not sent: a frame of")
