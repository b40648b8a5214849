"""Real child processes: small scripts that speak frames."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from elasticd.core.words.processes import NEWEST, OLDEST
from elasticd.errors import OperationError
from elasticd.ipc.frames import MAX_FRAME_BYTES
from elasticd.shell.children import server as module
from elasticd.shell.children.launch import Launch
from elasticd.shell.children.server import Child, ChildServer

pytestmark = pytest.mark.process
Run = Callable[[Coroutine[Any, Any, None]], None]

PRELUDE = """
import json, os, signal, sys, time
from elasticd.ipc.frames import FrameSocket, encode
me = json.loads(os.environ["ELASTICD_CHILD"])
links = []
def connect():
    link = FrameSocket.connect(me["socket"])
    link.send({"t": "hello", "nonce": me["nonce"], "pid": os.getpid(), "role": me["role"]})
    links.append(link)
    return link
"""


@dataclass
class Daemon:
    """A server under test, and everything that it called back with."""

    home: Path
    server: ChildServer = field(init=False)
    messages: asyncio.Queue[tuple[Child, dict[str, Any], list[int]]] = field(
        default_factory=asyncio.Queue
    )
    exits: list[tuple[Child, int | None]] = field(default_factory=list)
    order: list[str] = field(default_factory=list)

    async def start_child(self, script: str, **settings: Any) -> Child:
        command, log = [sys.executable, "-c", PRELUDE + script], self.home / "logs" / "0.log"
        own = {"PATH": os.environ["PATH"]}
        return await self.spawn(Launch("trainer", command, self.home, log, own, settings))

    async def spawn(self, launch: Launch) -> Child:
        """Raises OperationError: it does not start."""
        came: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        self.server.spawn(
            lambda: launch, came.set_result, lambda why: came.set_exception(OperationError(why))
        )
        return await came

    def on_message(self, child: Child, message: dict[str, Any], fds: list[int]) -> None:
        self.order.append(str(message["t"]))
        self.messages.put_nowait((child, message, fds))

    def on_exit(self, child: Child, status: int | None) -> None:
        self.order.append(f"exit {status}")
        self.exits.append((child, status))


@contextlib.asynccontextmanager
async def daemon(home: Path, alive_seconds: float = 5.0) -> AsyncIterator[Daemon]:
    one = Daemon(home)
    one.server = ChildServer(home, one.on_message, one.on_exit, alive_seconds=alive_seconds)
    await one.server.start()
    try:
        yield one
    finally:
        await one.server.close()
    assert not (home / module.SOCKET_NAME).exists()
    assert json.loads((home / module.ROSTER_NAME).read_text()) == []


def test_frames_and_descriptors_travel_both_ways(tmp_path: Path, run: Run) -> None:
    script = """
link = connect()
message, fds = link.receive()
with os.fdopen(fds[0], "rb") as file:
    text = file.read()
end, other = os.pipe()
os.write(other, b"from the child")
link.send({"t": "read", "text": text, "extra": me["extra"]}, [end])
link.receive()
"""

    async def main() -> None:
        async with daemon(tmp_path) as one:
            child = await one.start_child(script, extra=7)
            end, other = os.pipe()
            os.write(other, b"from the daemon")
            os.close(other)
            child.send({"t": "take"}, [end])  # before hello: kept for it
            os.close(end)
            sender, message, fds = await one.messages.get()
            assert sender is child and child.connected
            assert message == {"t": "read", "text": b"from the daemon", "extra": 7, "fds": 1}
            assert os.read(fds[0], 100) == b"from the child"
            os.close(fds[0])
            child.send({"t": "go"})
            assert await child.wait() == 0
            assert one.exits == [(child, 0)]
            assert not child.connected
            child.send({"t": "too late"})
            child.kill()

    run(main())


def test_a_child_is_handed_the_files_of_a_large_world(tmp_path: Path, run: Run) -> None:
    """A checkpoint of 300 members: what comes behind waits for all of them, without blocking."""
    script = """
link = connect()
message, fds = link.receive()
after, none = link.receive()
link.send({"t": "took", "count": len(fds), "files": len({os.fstat(fd).st_ino for fd in fds}),
           "after": after["t"]})
"""

    async def main() -> None:
        async with daemon(tmp_path) as one:
            child = await one.start_child(script)
            ends = [fd for _ in range(3) for fd in os.pipe()]
            before = _open_fds()
            child.send({"t": "load"}, ends * 50)
            child.send({"t": "next"})
            _, message, _ = await one.messages.get()
            assert message == {"t": "took", "count": 300, "files": 3, "after": "next"}
            assert await child.wait() == 0
            assert _open_fds() <= before
            for fd in ends:
                os.close(fd)

    run(main())


def test_last_words_come_before_the_exit(tmp_path: Path, run: Run) -> None:
    script = """
link = connect()
for number in range(200):
    link.send({"t": "word", "fill": "x" * 1000})
print("evidence", flush=True)
os._exit(3)
"""

    async def main() -> None:
        async with daemon(tmp_path) as one:
            child = await one.start_child(script)
            assert await child.wait() == 3
            assert one.order == ["word"] * 200 + ["exit 3"]
            assert child.log.read_text() == "evidence\n"

    run(main())


def test_a_child_is_a_session_of_its_own_with_no_descriptor_of_ours(
    tmp_path: Path, run: Run
) -> None:
    script = """
fds = sorted(int(fd) for fd in os.listdir("/dev/fd"))
link = connect()
with open(os.devnull) as null:
    stdin = os.path.samestat(os.fstat(0), os.fstat(null.fileno()))
link.send({"t": "seen", "session": os.getsid(0) == os.getpid(), "open": fds, "null": stdin})
"""

    async def main() -> None:
        async with daemon(tmp_path) as one:
            os.set_inheritable(leak := os.open(os.devnull, os.O_RDONLY), True)
            child = await one.start_child(script)
            _, message, _ = await one.messages.get()
            os.close(leak)
            assert message["session"] and message["null"]
            assert message["open"] in ([0, 1, 2], [0, 1, 2, 3])  # the last is the listing's own
            await child.wait()

    run(main())


def test_a_killed_child_reports_its_signal_and_takes_its_own_children_along(
    tmp_path: Path, run: Run
) -> None:
    script = """
import subprocess
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
connect().send({"t": "up", "worker": worker.pid})
time.sleep(60)
"""

    async def main() -> None:
        async with daemon(tmp_path) as one:
            child = await one.start_child(script)
            _, message, _ = await one.messages.get()
            worker = psutil.Process(message["worker"])
            started = asyncio.get_running_loop().time()
            os.kill(child.pid, signal.SIGKILL)  # from outside: only the leader
            assert await child.wait() == -signal.SIGKILL
            assert asyncio.get_running_loop().time() - started < 5.0
            await asyncio.to_thread(_gone, worker)

    run(main())


def _gone(process: psutil.Process) -> None:
    # Its new parent may never reap it (pid 1 of a container).
    with contextlib.suppress(psutil.Error):
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(timeout=0.05)


def test_alive_frames_come_regularly(tmp_path: Path, run: Run) -> None:
    script = """
link = connect()
for _ in range(3):
    assert link.receive()[0] == {"t": "alive"}
"""

    async def main() -> None:
        async with daemon(tmp_path, alive_seconds=0.02) as one:
            assert await (await one.start_child(script)).wait() == 0

    run(main())


@pytest.mark.parametrize(
    "lie",
    [
        'link._socket.sendall(b"\\xff" * 64)',
        'link._socket.sendall(b"\\0\\0\\0\\1\\x01")',
        'link.send({"t": "x"}); link._socket.sendall(encode({"t": "y", "fds": 2}))',
        'link.send({"t": "x"}, [0] * 60); link._socket.sendall(b"\\0\\0\\0\\1\\xc1")',
        'link.send({"t": "hello", "nonce": me["nonce"], "pid": 1, "role": "trainer"}, [0] * 60)',
        'link.send({"t": "bye", "status": "well"}, [0] * 60)',
    ],
)
def test_a_child_that_breaks_the_protocol_is_killed(tmp_path: Path, run: Run, lie: str) -> None:
    async def main() -> None:
        async with daemon(tmp_path) as one:
            child = await one.start_child(
                f"link = connect()\nlink.receive()\n{lie}\ntime.sleep(60)"
            )
            child.send({"t": "go"})
            assert await child.wait() == -signal.SIGKILL
            while not one.messages.empty():
                for fd in one.messages.get_nowait()[2]:
                    os.close(fd)

    run(main())


def test_a_child_that_does_not_read_is_killed_at_the_limit(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with daemon(tmp_path) as one:
            child = await one.start_child('connect().send({"t": "up"})\ntime.sleep(60)')
            await one.messages.get()
            end, other = os.pipe()
            before = _open_fds()
            for _ in range(5):
                child.send({"t": "flood", "fill": bytes(MAX_FRAME_BYTES // 2)}, [end])
            assert await child.wait() == -signal.SIGKILL
            assert _open_fds() < before
            os.close(end)
            os.close(other)

    run(main())


def test_a_child_that_never_says_hello_gets_a_bounded_queue_too(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with daemon(tmp_path) as one:
            child = await one.start_child("time.sleep(60)")
            for _ in range(5):
                child.send({"t": "flood", "fill": bytes(MAX_FRAME_BYTES // 2)})
            assert await child.wait() == -signal.SIGKILL

    run(main())


def _open_fds() -> int:
    return len(os.listdir("/dev/fd"))


def test_a_child_of_a_version_that_nobody_here_speaks_is_ended_at_once(
    tmp_path: Path, run: Run
) -> None:
    """Another is started in its place. Turned away only, it would come again and again."""
    script = """
hello = {"t": "hello", "nonce": me["nonce"], "pid": os.getpid(), "role": me["role"]}
links.append(FrameSocket.connect(me["socket"]))
links[0].send({**hello, "version": me["speaks"]})
time.sleep(60)
"""

    async def main() -> None:
        async with daemon(tmp_path) as one:
            for speaks in (OLDEST - 1, NEWEST + 1):
                assert (
                    await (await one.start_child(script, speaks=speaks)).wait() == -signal.SIGKILL
                )
            assert one.messages.empty()

    run(main())


def test_stop_ends_the_stubborn_too(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with daemon(tmp_path) as one:
            tame = await one.start_child('connect().send({"t": "up"})\ntime.sleep(60)')
            stubborn = await one.start_child(
                "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                'connect().send({"t": "up"})\ntime.sleep(60)'
            )
            stopped = await one.start_child('connect().send({"t": "up"})\ntime.sleep(60)')
            for _ in range(3):
                await one.messages.get()
            stopped.kill(signal.SIGSTOP)
            await one.server.stop_all(0.3)
            assert tame.status == -signal.SIGTERM
            assert stubborn.status == -signal.SIGKILL
            assert stopped.status in (-signal.SIGKILL, -signal.SIGTERM)
            assert one.server.children == ()

    run(main())


def test_what_cannot_start_is_an_error(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with daemon(tmp_path) as one:
            for command, folder in (
                (["/no/such/program"], tmp_path),
                ([sys.executable], tmp_path / "missing"),
            ):
                launch = Launch("reducer", command, folder, tmp_path / "log", {})
                with pytest.raises(OperationError, match="does not start"):
                    await one.spawn(launch)
            assert one.server.children == ()
            one.server._roster.end_leftovers()

    run(main())


def test_a_long_home_is_no_obstacle(tmp_path: Path, run: Run) -> None:
    home = tmp_path / ("long" * 30) / ("folder" * 10)
    home.mkdir(parents=True)

    async def main() -> None:
        async with daemon(home) as one:
            child = await one.start_child('connect().send({"t": "up"})')
            await one.messages.get()
            assert await child.wait() == 0

    run(main())


CRASHING = """
import asyncio, os, sys
from pathlib import Path
from elasticd.shell.children.launch import Launch
from elasticd.shell.children.server import ChildServer
home, script = Path(sys.argv[1]), sys.argv[2]
async def main():
    up = asyncio.Event()
    server = ChildServer(home, lambda *_: up.set(), lambda *_: None)
    await server.start()
    launch = Launch("trainer", [sys.executable, "-c", script], home, home / "log",
        {"PYTHONPATH": os.pathsep.join(sys.path)}, job="job-1", spare=True)
    server.spawn(lambda: launch, lambda child: None, print)
    await up.wait()
    (child,) = server.children
    print(child.pid, flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
FAITHFUL = """
from elasticd.ipc.child import DaemonLink
link = DaemonLink.connect()
link.introduce = lambda resume: resume([{"t": "here"}])
link.send({"t": "up"})
for message, fds in link.messages():
    if message["t"] == "stop":
        break
    link.send(message)
link.say_goodbye(7)
os._exit(7)
"""


async def crash(home: Path, script: str) -> psutil.Process:
    """A child whose daemon was killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CRASHING, home, PRELUDE + script, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return psutil.Process(int(output))


def test_a_new_daemon_takes_over_what_a_killed_one_left(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        left = await crash(tmp_path, FAITHFUL)
        one = Daemon(tmp_path)
        one.server = ChildServer(tmp_path, one.on_message, one.on_exit)
        (child,) = one.server.adopt()
        assert (child.pid, child.entry.job, child.entry.spare) == (left.pid, "job-1", True)
        assert child.adopted and child.log == tmp_path / "log"
        await one.server.start()
        try:
            child.send({"t": "early"})
            assert [(await one.messages.get())[1]["t"] for _ in range(2)] == ["here", "early"]
            child.send({"t": "stop"})
            assert await child.wait() == 7, "it said so itself"
            assert one.exits == [(child, 7)]
        finally:
            await one.server.close()

    run(main())


def test_how_an_adopted_child_was_killed_is_not_known(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        left = await crash(tmp_path, 'connect().send({"t": "up"}); time.sleep(60)')
        one = Daemon(tmp_path)
        one.server = ChildServer(tmp_path, one.on_message, one.on_exit)
        (child,) = one.server.adopt()
        await one.server.start()
        try:
            child.kill()
            assert await child.wait() is None
            assert one.exits == [(child, None)]
            _gone(left)
        finally:
            await one.server.close()
        assert ChildServer(tmp_path, one.on_message, one.on_exit).adopt() == []

    run(main())
