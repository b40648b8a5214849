from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import ProtocolError
from elasticd.ipc.frames import MAX_FRAME_BYTES, MAX_FRAME_FDS, Decoder, FrameSocket, encode
from tests.fullsocket import full_pair

Pair = tuple[FrameSocket, FrameSocket]

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
messages = st.dictionaries(st.text(), values, max_size=4)


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


@given(st.lists(messages, max_size=4), st.data())
def test_messages_survive_any_cut(sent: list[dict[str, Any]], data: st.DataObject) -> None:
    stream = b"".join(map(encode, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    decoder = Decoder()
    received = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[start:end])
    assert received == sent
    assert decoder.pending_bytes == 0


def test_a_frame_split_at_every_byte_comes_once() -> None:
    stream = encode({"t": "hello", "n": 1}) + encode({"t": "x" * 300})
    for cut in range(len(stream) + 1):
        decoder = Decoder()
        received = decoder.feed(stream[:cut]) + decoder.feed(stream[cut:])
        assert [message["t"] for message in received] == ["hello", "x" * 300]


@pytest.mark.parametrize(
    "bad",
    [
        struct.pack(">I", MAX_FRAME_BYTES + 1),
        b"\xff\xff\xff\xff",
        frame(b""),
        frame(b"\xc1"),
        frame(b"\x81"),
        frame(msgpack.packb([1, 2])),
        frame(msgpack.packb(None)),
        frame(msgpack.packb({1: 2})),
        frame(msgpack.packb({b"t": "hello"})),
        frame(msgpack.packb({"t": {1: 2}})),
        frame(msgpack.packb({"t": 1}) + b"\x00"),
        frame(b"\x81\xa1t\xa1\xff"),
        frame(b"\x91" * 5000),
    ],
    ids=repr,
)
def test_a_bad_frame_is_refused(bad: bytes) -> None:
    decoder = Decoder()
    with pytest.raises(ProtocolError):
        decoder.feed(encode({"t": "good"}) + bad[:1])
        decoder.feed(bad[1:])


@given(st.binary(max_size=200))
def test_garbage_gives_messages_or_a_protocol_error(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert all(isinstance(message, dict) for message in Decoder().feed(data))


def test_a_message_too_long_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match="longer"):
        encode({"data": bytes(MAX_FRAME_BYTES)})
    assert len(encode({"data": bytes(MAX_FRAME_BYTES - 16)})) <= MAX_FRAME_BYTES + 4


@pytest.fixture
def pair() -> Iterator[Pair]:
    left, right = map(FrameSocket, socket.socketpair())
    yield left, right
    left.close()
    right.close()


def received(connection: FrameSocket) -> tuple[dict[str, Any], list[int]]:
    result = connection.receive()
    assert result is not None
    return result


def test_descriptors_come_with_their_frame(pair: Pair) -> None:
    left, right = pair
    readers, writers = zip(*(os.pipe() for _ in range(3)), strict=True)
    left.send({"t": "first"})
    left.send({"t": "one"}, writers[:1])
    left.send({"t": "none"})
    left.send({"t": "two", "fds": 2, "pad": bytes(70_000)}, writers[1:])
    got = [received(right) for _ in range(4)]
    assert [(message["t"], len(fds)) for message, fds in got] == [
        ("first", 0),
        ("one", 1),
        ("none", 0),
        ("two", 2),
    ]
    copies = got[1][1] + got[3][1]
    assert not any(map(os.get_inheritable, copies))
    for number, copy in enumerate(copies):
        os.write(copy, bytes([number]))
        assert os.read(readers[number], 10) == bytes([number])
    for fd in (*readers, *writers, *copies):
        os.close(fd)


def test_many_threads_may_send(pair: Pair) -> None:
    left, right = pair

    def send(n: int) -> None:
        for i in range(50):
            left.send({"n": n, "i": i, "pad": bytes(9999)})

    threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    got = [received(right)[0] for _ in range(200)]
    for thread in threads:
        thread.join()
    for n in range(4):
        assert [message["i"] for message in got if message["n"] == n] == list(range(50))


def test_the_end_is_none_and_a_cut_frame_an_error(pair: Pair) -> None:
    left, right = pair
    left.send({"t": "last"})
    left.close()
    assert received(right)[0] == {"t": "last"}
    assert right.receive() is None


def test_a_stream_that_ends_inside_a_frame_is_an_error() -> None:
    raw, other = socket.socketpair()
    connection = FrameSocket(other)
    raw.sendall(encode({"t": "whole"}) + encode({"t": "cut"})[:-1])
    raw.close()
    assert received(connection)[0] == {"t": "whole"}
    with pytest.raises(ProtocolError, match="inside a frame"):
        connection.receive()
    connection.close()


@pytest.mark.parametrize("claim", [1, -1, True, "1", None, 2.0], ids=repr)
def test_descriptors_that_did_not_come_are_an_error(claim: object) -> None:
    raw, other = socket.socketpair()
    connection = FrameSocket(other)
    raw.sendall(encode({"t": "lie", "fds": claim}))
    with pytest.raises(ProtocolError, match="descriptors"):
        connection.receive()
    raw.close()
    connection.close()


def test_a_sender_cannot_claim_other_descriptors(pair: Pair) -> None:
    with pytest.raises(ProtocolError):
        pair[0].send({"t": "lie", "fds": 1})
    with pytest.raises(ProtocolError):
        pair[0].send({"t": "many"}, [0] * (MAX_FRAME_FDS + 1))


@pytest.mark.parametrize("count", [64, 65, 128, 300])
def test_many_descriptors_arrive_with_their_frame(pair: Pair, count: int) -> None:
    """A checkpoint of a large world has a file for each member."""
    left, right = pair
    files = [fd for _ in range(2) for fd in os.pipe()]
    sent = [files[n % len(files)] for n in range(count)]
    expected = (("before", files[:1]), ("many", sent), ("after", files[1:2]))
    for name, attached in expected:
        left.send({"t": name}, attached)
    for name, attached in expected:
        message, fds = received(right)
        assert message == {"t": name, "fds": len(attached)}
        assert [os.fstat(fd).st_ino for fd in fds] == [os.fstat(fd).st_ino for fd in attached]
        assert not any(os.get_inheritable(fd) for fd in fds)
        for fd in fds:
            os.close(fd)
    for fd in files:
        os.close(fd)


def test_descriptors_wait_until_a_full_socket_has_room() -> None:
    near, far = full_pair(refusals=3)
    left, right = FrameSocket(near), FrameSocket(far)
    with contextlib.closing(left), contextlib.closing(right):
        left.send({"t": "many"}, [far.fileno()] * 65)
        left.send({"t": "after"})
        message, fds = received(right)
        assert message == {"t": "many", "fds": 65} and len(fds) == 65
        assert received(right) == ({"t": "after"}, [])
        for fd in fds:
            os.close(fd)


def test_close_closes_descriptors_that_nobody_took(pair: Pair) -> None:
    left, right = pair
    reader, writer = os.pipe()
    left.send({"t": "plain"})
    left.send({"t": "with"}, [writer])
    left.send({"t": "after"})
    os.close(writer)
    message, fds = received(right)
    while message["t"] != "after":
        for fd in fds:
            os.close(fd)
        message, fds = received(right)
    assert os.read(reader, 1) == b""  # every copy of the writing end is closed
    os.close(reader)


def test_a_long_path_can_be_connected_to(tmp_path: Path) -> None:
    folder = tmp_path / ("long-" * 20) / ("longer-" * 10)
    folder.mkdir(parents=True)
    path = folder / "children.sock"
    before = os.getcwd()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        os.chdir(folder)
        try:
            listener.bind(path.name)
        finally:
            os.chdir(before)
        listener.listen()
        connection = FrameSocket.connect(path)
        assert os.getcwd() == before
        connection.send({"t": "hello"})
        accepted = FrameSocket(listener.accept()[0])
        assert received(accepted)[0] == {"t": "hello"}
        accepted.close()
        connection.close()
    with pytest.raises(OSError):
        FrameSocket.connect(path)
    assert os.getcwd() == before


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_garbage_is_refused_and_nothing_is_kept_for_what_it_claims(parts: list[bytes]) -> None:
    decoder = Decoder()
    fed = 0
    try:
        for part in parts:
            fed += len(part)
            for message in decoder.feed(part):
                assert all(isinstance(key, str) for key in message)
    except ProtocolError:
        pass
    assert decoder.pending_bytes <= fed


def test_a_strangers_first_frame_is_short_and_a_friends_later_ones_need_not_be() -> None:
    long = encode({"t": "x" * 2000})
    with pytest.raises(ProtocolError, match="longer than 1000"):
        Decoder(1000).feed(long)
    received = Decoder(1000).feed(encode({"t": "hello"}) + long)
    assert [len(message["t"]) for message in received] == [5, 2000]
