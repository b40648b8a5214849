from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from structlog.testing import capture_logs

from elasticd.core.words.codec import Words
from elasticd.core.words.requests.every import REQUESTS
from elasticd.errors import OperationError, UsageError
from elasticd.ipc.frames import MAX_FRAME_BYTES, Decoder, encode
from elasticd.settings.places import SOCKET_NAME
from elasticd.shell.assembly.expulsion import Expulsion
from elasticd.shell.assembly.rotating import Rotating
from elasticd.shell.chaos.inject import Chaos
from elasticd.shell.control.diskdesk import DiskDesk
from elasticd.shell.control.inventory import Inventory
from elasticd.shell.control.logdesk import LogDesk
from elasticd.shell.control.lossdesk import LossDesk
from elasticd.shell.control.noticedesk import NoticeDesk
from elasticd.shell.control.outputdesk import OutputDesk
from elasticd.shell.control.preflightdesk import PreflightDesk
from elasticd.shell.control.queries import Queries
from elasticd.shell.control.server import ControlServer, Handler, Stream, lock_home
from elasticd.shell.control.submissions import Submissions
from elasticd.shell.unixsocket import bind_unix
from elasticd.types import JobId

Run = Callable[[Coroutine[Any, Any, None]], None]
Answer = dict[str, Any]


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._decoder = Decoder()
        self._frames: list[Answer] = []

    async def ask(self, **request: Any) -> Answer:
        self.writer.write(encode(request))
        return await self.frame()

    async def frame(self) -> Answer:
        while not self._frames:
            data = await self.reader.read(1 << 16)
            assert data, "the daemon hung up"
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    async def hang_up(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


@dataclass(frozen=True)
class Echo:
    kind: ClassVar = "echo"
    text: str


@dataclass(frozen=True)
class OfJob:
    kind: ClassVar = "of_job"
    job: JobId


@dataclass(frozen=True)
class Refuse:
    kind: ClassVar = "refuse"
    why: str


@dataclass(frozen=True)
class Total:
    kind: ClassVar = "total"
    bytes: int


@dataclass(frozen=True)
class Follow:
    kind: ClassVar = "follow"


WORDS: Words[Any] = Words(Echo | OfJob | Refuse | Total | Follow, key="do")


async def nothing(request: Any, stream: Stream) -> None:
    return None


def serving(home: Path, **handlers: Handler) -> ControlServer:
    """Of the words whose handlers are not given, with nothing."""
    by_kind = {kind: handlers.get(name, nothing) for name, (kind,) in WORDS.named.items()}
    return ControlServer(home, by_kind, WORDS)


@contextlib.asynccontextmanager
async def connected(home: Path, **handlers: Handler) -> AsyncIterator[Client]:
    server = serving(home, **handlers)
    await server.start()
    with contextlib.chdir(home):
        client = Client(*await asyncio.open_unix_connection(SOCKET_NAME))
    try:
        yield client
    finally:
        await client.hang_up()
        await server.close()
    assert not (home / SOCKET_NAME).exists()


async def echo(request: Echo, stream: Stream) -> Answer:
    return {"echo": request.text}


def test_requests_are_answered_in_turn(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with connected(tmp_path, echo=echo) as client:
            for text in ("a", "b" * 1_000_000):
                assert await client.ask(do="echo", text=text) == {"echo": text}
            assert (tmp_path / SOCKET_NAME).stat().st_mode & 0o777 == 0o600

    run(main())


def test_a_long_home_is_no_obstacle(tmp_path: Path, run: Run) -> None:
    home = tmp_path / ("long" * 40)
    home.mkdir()

    async def main() -> None:
        async with connected(home, echo=echo) as client:
            assert await client.ask(do="echo", text="x") == {"echo": "x"}

    run(main())


def test_errors_carry_their_exit_code_and_the_connection_goes_on(tmp_path: Path, run: Run) -> None:
    async def refuse(request: Refuse, stream: Stream) -> Answer:
        match request.why:
            case "usage":
                raise UsageError("job.toml:3: bad")
            case "operation":
                raise OperationError("unknown job x")
            case "disk":
                raise OSError(28, "No space left on device", "/data/x")
            case "defect":
                raise LookupError("no such key")
            case _:
                return {"data": bytes(MAX_FRAME_BYTES)}

    async def main() -> None:
        async with connected(tmp_path, refuse=refuse) as client:
            usage = {"error": "job.toml:3: bad", "code": 2}
            assert await client.ask(do="refuse", why="usage") == usage
            operation = {"error": "unknown job x", "code": 1}
            assert await client.ask(do="refuse", why="operation") == operation
            disk = {"error": "/data/x: No space left on device", "code": 1}
            assert await client.ask(do="refuse", why="disk") == disk
            defect = {"error": "bad request 'refuse': LookupError: no such key", "code": 2}
            assert await client.ask(do="refuse", why="defect") == defect
            assert (await client.ask(do="nothing"))["code"] == 2
            assert (await client.ask(do=["x"]))["code"] == 2
            assert (await client.ask(other=1))["code"] == 2
            assert "longer" in (await client.ask(do="refuse", why="too long"))["error"]

    run(main())


def test_a_wrong_request_names_the_field_and_the_connection_goes_on(
    tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with connected(tmp_path, echo=echo) as client:
            assert await client.ask(do="echo", text=7) == {
                "error": "bad request 'echo': Echo.text: expected str, got int",
                "code": 2,
            }
            assert "field text is missing" in (await client.ask(do="echo"))["error"]
            assert (await client.ask(do="new"))["error"] == "unknown request 'new'"
            assert await client.ask(do="echo", text="x", later=1) == {"echo": "x"}

    run(main())


def test_who_types_a_wrong_id_reads_no_field_and_the_log_has_it(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with connected(tmp_path, of_job=echo) as client:
            answer = await client.ask(do="of_job", job="")
            assert answer["code"] == 2 and answer["error"].startswith("'' is no job's id: 1 to")
            answer = await client.ask(do="of_job", job="../x")
            assert answer["error"].startswith("'../x' is no job's id")

    with capture_logs() as logged:
        run(main())
    assert "bad request 'of_job': OfJob.job: '' is no job's id" in str(logged)


def test_no_kind_of_request_is_forgotten(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="CancelJob"):
        ControlServer(tmp_path, {Follow: nothing})


def test_every_request_of_the_control_socket_has_its_handler() -> None:
    """Else no daemon would start, and no quick test would tell."""
    desks: list[Any] = [
        Queries,
        Submissions,
        Inventory,
        OutputDesk,
        LogDesk,
        DiskDesk,
        Chaos,
        Expulsion,
        Rotating,
        NoticeDesk,
        LossDesk,
        PreflightDesk,
    ]
    answered = [kind for desk in desks for kind in desk.handlers(object.__new__(desk))]
    assert sorted(map(repr, answered)) == sorted(map(repr, REQUESTS.kinds))


def test_a_handler_receives_further_frames(tmp_path: Path, run: Run) -> None:
    async def total(request: Total, stream: Stream) -> Answer:
        size = 0
        while size < request.bytes:
            size += len((await stream.receive())["data"])
        return {"size": size}

    async def main() -> None:
        async with connected(tmp_path, total=total) as client:
            client.writer.write(encode({"do": "total", "bytes": 50_000 * 40}))
            for _ in range(40):
                client.writer.write(encode({"data": bytes(50_000)}))
            assert await client.frame() == {"size": 2_000_000}

    run(main())


def test_what_a_client_sends_stays_with_it_while_it_is_held_back(tmp_path: Path, run: Run) -> None:
    """However many wait for their turns, what they send takes no memory."""
    begun, go = asyncio.Event(), asyncio.Event()
    frame = encode({"data": bytes(1 << 20)})
    everything = frame * 16

    async def total(request: Total, stream: Stream) -> Answer:
        with stream.held_back():
            begun.set()
            await go.wait()
        for _ in range(16):
            await stream.receive()
        return {"done": True}

    async def push(client: socket.socket, sent: int) -> int:
        """How much the daemon has taken when it takes no more."""
        refused = 0
        while refused < 100 and sent < len(everything):
            try:
                sent += client.send(everything[sent : sent + len(frame)])
                refused = 0
            except BlockingIOError:
                refused += 1
            await asyncio.sleep(0)
        return sent

    async def main() -> None:
        async with connected(tmp_path, total=total) as client:
            client.writer.write(encode({"do": "total", "bytes": 0}))
            await begun.wait()
            with client.writer.get_extra_info("socket").dup() as own:
                own.setblocking(False)
                sent = await push(own, 0)
                assert sent < 2 * len(frame)
                go.set()
                assert await push(own, sent) == len(everything)
            assert await client.frame() == {"done": True}

    run(main())


def test_a_stream_waits_for_a_slow_client_and_ends(tmp_path: Path, run: Run) -> None:
    sent: list[int] = []
    blocked = asyncio.Event()

    async def flood(request: Follow, stream: Stream) -> None:
        for number in range(400):
            asyncio.get_running_loop().call_later(0.1, _set_if, blocked, sent, number)
            await stream.send({"n": number, "fill": bytes(10_000)})
            sent.append(number)

    def _set_if(event: asyncio.Event, sent: list[int], number: int) -> None:
        if sent[-1:] < [number]:
            event.set()  # a send has been waiting for 0.1 s

    async def main() -> None:
        async with connected(tmp_path, follow=flood) as client:
            client.writer.write(encode({"do": "follow"}))
            await blocked.wait()
            assert len(sent) < 400
            for number in range(400):
                assert (await client.frame())["n"] == number
            assert await client.frame() == {"end": True}

    run(main())


def test_a_client_that_hangs_up_cancels_its_handler(tmp_path: Path, run: Run) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def follow(request: Follow, stream: Stream) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def main() -> None:
        async with connected(tmp_path, follow=follow) as client:
            client.writer.write(encode({"do": "follow"}))
            await started.wait()
            await client.hang_up()
            await ended.wait()

    run(main())


def test_close_cancels_what_runs(tmp_path: Path, run: Run) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def follow(request: Follow, stream: Stream) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def main() -> None:
        server = serving(tmp_path, follow=follow)
        await server.start()
        client = Client(*await asyncio.open_unix_connection(tmp_path / SOCKET_NAME))
        client.writer.write(encode({"do": "follow"}))
        await started.wait()
        await server.close()
        assert ended.is_set()
        assert await client.reader.read() == b""
        await client.hang_up()

    run(main())


@pytest.mark.parametrize("garbage", [b"\xff" * 50, b"\0\0\0\1\x01", b"\0\0\0\1\xc1"])
def test_garbage_is_answered_and_closes_the_connection(
    tmp_path: Path, run: Run, garbage: bytes
) -> None:
    async def main() -> None:
        async with connected(tmp_path) as client:
            client.writer.write(garbage)
            assert (await client.frame())["code"] == 1
            assert await client.reader.read() == b""

    run(main())


def test_a_dead_daemons_socket_is_replaced(tmp_path: Path) -> None:
    bind_unix(tmp_path / "x.sock").close()
    assert (tmp_path / "x.sock").exists()
    bind_unix(tmp_path / "x.sock").close()


def test_a_home_has_one_daemon(tmp_path: Path) -> None:
    lock = lock_home(tmp_path)
    with pytest.raises(UsageError, match=rf"already running here \(process {os.getpid()}\)"):
        lock_home(tmp_path)
    os.close(lock)
    os.close(lock_home(tmp_path))


@pytest.mark.process
def test_a_dead_daemon_frees_its_home(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from elasticd.shell.control.server import *\n"
    )
    script += "lock_home(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    result = subprocess.run([sys.executable, "-c", script, tmp_path], timeout=20)
    assert result.returncode == -9
    os.close(lock_home(tmp_path))
