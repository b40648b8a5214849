"""What is sent in the place of a message that the other end doesn't know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

from elasticd.core.words.frames import Frame, decode_frame, encode_frame
from elasticd.core.words.hearers import UNSAID, Hearers, unsaid
from elasticd.core.words.messages import DAEMONS
from elasticd.core.words.versions import NEWEST
from elasticd.core.words.views import Carry
from elasticd.types import NodeId

VIA, FAR = NodeId("via"), NodeId("far")


@dataclass(frozen=True)
class Newest:
    """A message that a version to come has added."""

    since: ClassVar = NEWEST + 1


def test_of_a_frame_that_is_carried_the_one_inside_keeps_its_place(monkeypatch: Any) -> None:
    """Those behind it in that stream would wait for it for ever, and the carrier has no use for
    what is put in its place."""
    monkeypatch.setitem(DAEMONS.named, "Newest", [Newest])
    inner = encode_frame(Frame(("me", "far"), 1, 7, 9, 1, 0, cast(Any, Newest())))
    frame = Frame(("me", "via"), 1, 0, 3, 1, 0, Carry(NodeId("me"), FAR, False, inner))
    hearers = Hearers(newest=NEWEST + 1)
    hearers.met(VIA, NEWEST + 1)
    hearers.met(FAR, NEWEST)
    for sent in (hearers.fitting(VIA, frame), unsaid(frame)):
        assert isinstance(sent.message, Carry)
        assert (sent.message.source, sent.message.target) == ("me", FAR)
        carried = decode_frame(sent.message.frame)
        assert (carried.number, carried.message) == (7, UNSAID)
    hearers.met(FAR, NEWEST + 1)
    assert hearers.fitting(VIA, frame) is frame
