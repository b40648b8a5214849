"""What daemons say beside their session: as version 0.1 said it."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.core.words.codec import Words
from elasticd.core.words.connections import (
    ASIDE,
    CONNECTION,
    FETCH,
    OF_FETCH,
    FetchRefused,
    FetchSize,
    FetchWaits,
    HaveEvents,
    NodeInfo,
    OpenFetch,
    PeerHello,
    Ping,
    Pong,
    TakeEvents,
)
from elasticd.core.words.processes import FROM_ANY_CHILD, TO_ANY_CHILD, Alive, ChildBye, ChildHello
from elasticd.errors import ProtocolError
from elasticd.types import NodeId

HELLO = PeerHello(NodeId("a"), "b", "h:1", 3, "available", ("h:1",))
SAID: dict[str, Any] = {
    "t": "hello", "version": 3, "node": "a", "boot": "b", "address": "h:1",
    "partition": "available", "addresses": ["h:1"],
}  # fmt: skip
EVENT = {"time": 1.5, "kind": "x", "origin": "o", "number": 1, "more": {"x": [1, None]}}


@pytest.mark.parametrize(
    ("words", "word", "frame"),
    [
        (CONNECTION, HELLO, SAID),
        (CONNECTION, Ping(7), {"t": "ping", "n": 7}),
        (CONNECTION, Pong(7), {"t": "pong", "n": 7}),
        (FETCH, OpenFetch("log"), {"t": "fetch", "what": "log"}),
        (OF_FETCH, FetchRefused("no"), {"error": "no"}),
        (OF_FETCH, FetchWaits(5.0), {"waits_seconds": 5.0}),
        (OF_FETCH, FetchSize(3), {"bytes": 3}),
        (
            ASIDE,
            NodeInfo("h:1", 7, "arm", 8, "1.0"),
            {
                "t": "node_info",
                "address": "h:1",
                "pid": 7,
                "chip": "arm",
                "memory_bytes": 8,
                "version": "1.0",
                "serial": "",
                "makes_members": False,
                "addresses": [],
                "others": [],
                "notifies": [],
                "settings_refused": "",
            },
        ),
        (ASIDE, HaveEvents({"o": 3}), {"t": "have_events", "vector": {"o": 3}, "after": ["", 0]}),
        (ASIDE, TakeEvents((EVENT,)), {"t": "events", "items": [EVENT], "more": False}),
        (
            FROM_ANY_CHILD,
            ChildHello("ab", 7, "trainer"),
            {"t": "hello", "nonce": "ab", "pid": 7, "role": "trainer", "version": 1},
        ),
        (FROM_ANY_CHILD, ChildBye(3), {"t": "bye", "status": 3}),
        (TO_ANY_CHILD, Alive(), {"t": "alive"}),
    ],
)
def test_the_wire_is_as_it_was(words: Words[Any], word: Any, frame: dict[str, Any]) -> None:
    assert words.encode(word) == frame
    assert words.decode({**frame, "said by": "a later version"}) == word


def test_a_hello_that_says_little_is_one_of_another_version() -> None:
    little = {"t": "hello", "node": "a", "boot": "b", "address": "h:1"}
    assert CONNECTION.decode(little) == PeerHello(NodeId("a"), "b", "h:1")


def test_an_answer_is_known_by_what_it_says() -> None:
    assert OF_FETCH.decode({"error": "no", "bytes": 3}) == FetchRefused("no")
    with pytest.raises(ProtocolError, match="bytes is missing"):
        OF_FETCH.decode({"size": 3})
    assert OF_FETCH.knows({}) and not ASIDE.knows({}) and not ASIDE.knows({"t": ["events"]})
