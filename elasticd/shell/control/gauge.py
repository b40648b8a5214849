"""Measures one link as the ranks of a ring use it: unencrypted, at a port like theirs.

One end opens a door for one caller, who has its word. The caller sends bytes that come back, and
then takes what comes for a moment. Both ends do so in threads, with deadlines.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import socket
import threading
from statistics import median

from elasticd.errors import OperationError
from elasticd.ipc.accepting import is_of_one
from elasticd.shell.children.ports import claim_port
from elasticd.shell.clock import monotonic_seconds
from elasticd.shell.network.stream import aside

DOOR_SECONDS = 15.0
"""So long a door is open in all, whoever knocks."""
CONNECT_SECONDS = 5.0
TAKE_SECONDS = 0.3
MAX_DOORS = 8
ECHOES = 20
_SEND_SECONDS = 2.0
_IDLE_SECONDS = 5.0
_ECHO, _SEND = b"e", b"s"
_PIECE = bytes(256 * 1024)

_doors = threading.BoundedSemaphore(MAX_DOORS)


def open_door(host: str, word: bytes, seconds: float = DOOR_SECONDS) -> int:
    """The port at which one caller with the ``word`` is served, soon.

    Raises:
        OperationError: there are too many, or no port of that host is free.
    """
    if not _doors.acquire(blocking=False):
        raise OperationError(f"{MAX_DOORS} links to it are being measured")
    try:
        claimed = claim_port(host)
        try:
            listener = socket.create_server((host, claimed.port), backlog=4)
        except OSError as error:
            raise OperationError(f"it can't listen on {host}: {error}") from None
        finally:
            claimed.close()
    except BaseException:
        _doors.release()
        raise
    threading.Thread(
        target=_keep, args=(listener, word, seconds), name="elasticd-gauge", daemon=True
    ).start()
    return claimed.port


async def knock(
    host: str, port: int, word: bytes, seconds: float = TAKE_SECONDS
) -> tuple[float, float]:
    """Bytes a second and the round trip's seconds of the link to such a door.

    Raises:
        OSError: nobody is there, or whoever is hangs up.
    """
    loop = asyncio.get_running_loop()
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        async with asyncio.timeout(CONNECT_SECONDS):
            await loop.sock_connect(connection, (host, port))
        connection.settimeout(_IDLE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seen: list[tuple[float, float]] = []
        await aside(lambda own: seen.append(_take(own, word, seconds)), connection)
        return seen[0]
    finally:
        connection.close()


def _take(connection: socket.socket, word: bytes, seconds: float) -> tuple[float, float]:
    connection.sendall(word)
    trips = []
    for _ in range(ECHOES):
        began = monotonic_seconds()
        connection.sendall(_ECHO)
        if connection.recv(1) != _ECHO:
            raise ConnectionError("it hung up")
        trips.append(monotonic_seconds() - began)
    connection.sendall(_SEND)
    buffer, total = bytearray(1 << 20), 0
    if not connection.recv_into(buffer):
        raise ConnectionError("it hung up")
    began = monotonic_seconds()
    while (took := monotonic_seconds() - began) < seconds:
        got = connection.recv_into(buffer)
        if not got:
            raise ConnectionError("it hung up")
        total += got
    return total / took, median(trips)


def _keep(listener: socket.socket, word: bytes, seconds: float) -> None:
    """The thread of a door."""
    until = monotonic_seconds() + seconds
    try:
        with listener:
            while (left := until - monotonic_seconds()) > 0:
                listener.settimeout(left)
                try:
                    connection, _ = listener.accept()
                except OSError as error:
                    if is_of_one(error):
                        continue
                    return
                with connection:
                    if _met(connection, word, min(_IDLE_SECONDS, left)):
                        return
    finally:
        _doors.release()


def _met(connection: socket.socket, word: bytes, seconds: float) -> bool:
    """Whether it was the one who has the word, who is served then. It hangs up as it likes."""
    known = False
    with contextlib.suppress(OSError):
        connection.settimeout(seconds)
        known = _knows(connection, word)
        if known:
            _serve(connection)
    return known


def _knows(connection: socket.socket, word: bytes) -> bool:
    said = b""
    while len(said) < len(word) and (more := connection.recv(len(word) - len(said))):
        said += more
    return hmac.compare_digest(said, word)


def _serve(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(ECHOES + 1):
        if (said := connection.recv(1)) == _SEND:
            break
        if said != _ECHO:
            return
        connection.sendall(_ECHO)
    until = monotonic_seconds() + _SEND_SECONDS
    while monotonic_seconds() < until:
        connection.sendall(_PIECE)
