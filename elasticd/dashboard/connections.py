"""What strangers can do to the page's process before anybody asks for their token: connect, and be
silent, slow or wrong. None of that may cost more than it does here."""

from __future__ import annotations

import asyncio
import io
import os
from typing import TextIO

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from elasticd.dashboard.guard import HEADERS

REQUEST_SECONDS = 5.0
"""In which a request is to be there, from its first byte (the first one: from the connection)."""
MOST_CONNECTIONS = 256
"""Beyond them one is closed that keeps nobody waiting."""
MOST_LOG_BYTES = 1 << 20


class WebConnection(H11Protocol):
    """One of the web server's. uvicorn keeps them in a set; ``_begun`` gives their order."""

    _late: asyncio.TimerHandle | None = None
    _begun = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begun = self.loop.time()
        self._mind()
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._mind()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_time()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.timeout_keep_alive_task is None:  # the next request was there, or its beginning
            self._mind()

    def send_400_response(self, msg: str) -> None:
        """As uvicorn's, with the headers that every answer has."""
        own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        head = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close"), *own]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            for event in (
                h11.Response(status_code=400, headers=head, reason=b"Bad Request"),
                h11.Data(data=msg.encode("ascii")),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def is_idle(self) -> bool:
        """Nobody works for it: no request is there, or it doesn't read the answer."""
        return not self._is_answered() or self.flow.write_paused

    def _is_answered(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    def _mind(self) -> None:
        if self._is_answered():
            self._forget_time()
        elif self._late is None:
            self._late = self.loop.call_later(REQUEST_SECONDS, self._too_late)

    def _forget_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_late(self) -> None:
        self._late = None
        if not self._is_answered():
            self.transport.abort()

    def _make_room(self) -> None:
        idle = [each for each in self.connections if isinstance(each, WebConnection)]
        idle = [each for each in idle if each is not self and each.is_idle()] or [self]
        goes = min(idle, key=lambda each: each._begun)
        self.connections.discard(goes)
        goes.transport.abort()


class BoundedErrors(io.TextIOBase):
    """In the place of ``sys.stderr``, whose file begins anew when it has become too long."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.flush()
        fd = self._stream.fileno()
        try:
            if os.fstat(fd).st_size + len(text) > MOST_LOG_BYTES:
                os.ftruncate(fd, 0)
                os.lseek(fd, 0, os.SEEK_SET)
        except OSError:  # a terminal, say
            pass
        return self._stream.write(text[-MOST_LOG_BYTES // 4 :])

    def flush(self) -> None:
        self._stream.flush()
