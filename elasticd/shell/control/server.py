"""The Unix socket on which the command line talks to the daemon (docs/protocols.md §3)."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from elasticd.core.words.codec import Words, to_plain
from elasticd.core.words.requests.ends import Failed, StreamEnded
from elasticd.core.words.requests.every import REQUESTS, Answer
from elasticd.errors import ElasticdError, IdError, OperationError, ProtocolError, UsageError
from elasticd.ipc.accounts import peer_uid
from elasticd.ipc.frames import Decoder, encode
from elasticd.settings.diskroom import refusal
from elasticd.settings.places import SOCKET_NAME
from elasticd.shell.complaints import Complaints
from elasticd.shell.tasks import Tasks, tell
from elasticd.shell.unixsocket import bind_unix

LOCK_NAME = "lock"
MAX_WAITING = 4
"""Frames that are read ahead of the handler."""
MAX_CLIENTS = 256
REQUEST_SECONDS = 30.0
"""How long a client may take for its request frame, and for each later frame that a handler asks
for.
"""

_READ_BYTES = 256 * 1024
_SHOWN_CHARS = 200

R = TypeVar("R")


def lock_home(home: Path) -> int:
    """Take the home for this process; the kernel frees it when the descriptor closes or we die.

    Raises:
        UsageError: a living daemon has it.
    """
    fd = os.open(home / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise UsageError(
            f"{home}: a daemon is already running here (process {holder or 'unknown'})"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd


Said = Mapping[str, Any] | Answer
"""What describes the cluster is a plain map; small answers are words."""


class Stream:
    """A handler's view of its client: further frames in, any number of frames out."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        uid: int | None = None,
    ) -> None:
        """``uid``: the account that the client runs as, by the kernel; None: it doesn't say."""
        self.uid = uid
        self._reader = reader
        self._writer = writer
        self._frames: asyncio.Queue[dict[str, Any] | ProtocolError] = asyncio.Queue(MAX_WAITING)
        self._may_read = asyncio.Event()
        self._may_read.set()

    @contextlib.contextmanager
    def held_back(self) -> Iterator[None]:
        """Leave what the client sends in its hands meanwhile: what waits here takes memory. That it
        hangs up shows afterwards."""
        self._may_read.clear()
        try:
            yield
        finally:
            self._may_read.set()

    async def _pump(self) -> bool:
        """Read until the client hangs up (True) or sends what is no frame (False)."""
        decoder = Decoder()
        try:
            while data := await self._reader.read(_READ_BYTES):
                for frame in decoder.feed(data):
                    await self._frames.put(frame)
                await self._may_read.wait()
        except ProtocolError as error:
            await self._frames.put(error)
            return False
        except OSError:
            pass
        return True

    async def receive(self, seconds: float | None = REQUEST_SECONDS) -> dict[str, Any]:
        """The client's next frame; with None it may take as long as it likes.

        Raises:
            ProtocolError: it is none, or came too late.
        """
        try:
            async with asyncio.timeout(seconds):
                frame = await self._frames.get()
        except TimeoutError:
            raise ProtocolError(f"nothing came for {seconds} s") from None
        if isinstance(frame, ProtocolError):
            raise frame
        return frame

    async def send(self, said: Said) -> None:
        """Send one frame; returns when the client keeps up (back-pressure).

        Raises:
            ProtocolError: it is longer than a frame may be.
            ConnectionError: the client hung up.
        """
        self._writer.write(encode(said if isinstance(said, Mapping) else to_plain(said)))
        await self._writer.drain()


def _read_to_its_end(client: asyncio.Task[Any], pump: asyncio.Task[bool]) -> None:
    """Nobody waits for more from a client that has hung up, or that can't be read."""
    if pump.cancelled():
        return
    if (error := pump.exception()) is not None:
        tell("reading from a client of control.sock failed", error)
    if error is not None or pump.result():
        client.cancel()


Handler = Callable[[Any, Stream], Awaitable[Said | None]]
"""Gets a request and its client; returns the answer, or None after it has streamed.

It is cancelled when the client hangs up. What it raises becomes the client's error: an
ElasticdError with its exit code, an OSError with code 1.
"""
Handlers = Mapping[type[Any], Handler]
"""The handler of each kind of request."""


def on(kind: type[R], handler: Callable[[R, Stream], Awaitable[Said | None]]) -> Handlers:
    """One kind of request and its handler, which the type checker compares."""
    return {kind: handler}


class ControlServer:
    """Listens on ``HOME/control.sock`` and hands each request to the handler of its kind.

    A client may send several requests, one after the other, on one connection.
    """

    def __init__(self, home: Path, handlers: Handlers, words: Words[Any] = REQUESTS) -> None:
        """Every kind of ``words`` has its handler."""
        if forgotten := set(words.kinds) - set(handlers):
            raise TypeError(f"nobody answers {sorted(kind.__name__ for kind in forgotten)}")
        self._path = home.absolute() / SOCKET_NAME
        self._handlers, self._words = dict(handlers), words
        self.complaints = Complaints("control")
        self._clients = Tasks("answering on control.sock")
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. The caller holds :func:`lock_home`.

        Raises:
            OSError: the socket can't be made in HOME.
        """
        self._server = await asyncio.start_unix_server(self._accept, sock=bind_unix(self._path))

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: the one that asyncio makes of a coroutine complains when it is
        # cancelled.
        client = self._clients.start(self._serve(reader, writer))
        client.add_done_callback(lambda _: writer.close())  # it may be cancelled before it begins

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        assert me is not None
        stream = Stream(reader, writer, peer_uid(writer.get_extra_info("socket")))
        pump = asyncio.create_task(stream._pump())
        pump.add_done_callback(partial(_read_to_its_end, me))
        try:
            await self._converse(stream)
        finally:
            pump.cancel()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _converse(self, stream: Stream) -> None:
        with contextlib.suppress(ConnectionError):
            try:
                if len(self._clients) > MAX_CLIENTS:
                    raise OperationError(f"more than {MAX_CLIENTS} clients are connected")
                while True:
                    await self._answer(await stream.receive(), stream)
            except (ProtocolError, OperationError) as error:
                self.complaints("a client", str(error))
                await stream.send(Failed(str(error), error.exit_code))

    async def _answer(self, request: dict[str, Any], stream: Stream) -> None:
        answer: Said
        name = str(request.get(self._words.key))[:_SHOWN_CHARS]
        try:
            word = self._read(name, request)
            answer = await self._handlers[type(word)](word, stream) or StreamEnded()
        except ConnectionError:
            raise
        except ElasticdError as error:
            answer = Failed(str(error), error.exit_code)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            answer = self._bad(name, f"{type(error).__name__}: {error}")
        except OSError as error:
            answer = Failed(refusal(error), OperationError.exit_code)
        await stream.send(answer)

    def _read(self, name: str, request: dict[str, Any]) -> Any:
        """The request as a word.

        Raises:
            UsageError: it is none.
        """
        if name not in self._words.named:
            raise UsageError(f"unknown request {name!r}")
        try:
            return self._words.decode(request)
        except IdError as error:
            self._bad(name, str(error))
            raise UsageError(error.said) from None
        except ProtocolError as error:
            raise UsageError(self._bad(name, str(error)).error) from None

    def _bad(self, name: str, why: str) -> Failed:
        shown = f"bad request {name!r}: {why}"
        self.complaints("a client", shown)
        return Failed(shown[:_SHOWN_CHARS], UsageError.exit_code)

    async def close(self) -> None:
        """Stop listening, cancel every handler, and remove the socket."""
        if self._server is None:
            return
        self._server.close()
        await self._clients.cancel()
        await self._server.wait_closed()
        self._server = None
        self._path.unlink(missing_ok=True)
