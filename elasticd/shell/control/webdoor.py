"""The door of the web page: the daemon listens, and who knocks has a process of its own started.

Nothing of the page runs in the daemon's loop, which has heartbeats to send. While nobody looks
there is no such process at all: the daemon only has the socket, and sees that somebody is at it.
The process takes that connection and all that follow. It ends when nobody has looked for a while,
when the daemon ends (its standard input closes), or by a fault; then the daemon waits for the next
knock.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import ipaddress
import os
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import structlog
import tenacity

from elasticd.ipc.listening import listeners, listens_here
from elasticd.settings.config import NodeConfig
from elasticd.shell.children.environment import of_child
from elasticd.shell.clock import monotonic_seconds
from elasticd.shell.control.webtoken import WebPlace, make_token, renew_token, tell_place
from elasticd.shell.network.ownaddresses import EVERYWHERE
from elasticd.shell.storage.durable import open_private

MODULE = "elasticd.dashboard"
LOG_FILE = "dashboard.log"
NEEDED = ("prometheus_client", "starlette", "uvicorn")
EXTRA = "elasticd[dashboard]"
BUSY_SECONDS = 30.0
"""Between two tries to get a port that another process has."""
LEAST_PAUSE, MOST_PAUSE = 1.0, 60.0
"""After a process that failed; each time in a row twice as long."""
STEADY_SECONDS = 60.0
"""One that ran for so long did not fail in a row."""
END_SECONDS = 2.0
_BACKLOG = 64
_SHOWN = "another account had its port, and may have been shown the one of before"
_SHOW = "'elasticctl dashboard' prints the new address; give Prometheus the new HOME/metrics.token"

log = structlog.get_logger(__name__)

Command = Callable[[int], Sequence[str]]
"""What to start for the page, given the descriptor on which it is to listen."""


def lacking() -> str:
    """What is not installed that the page needs; empty: nothing."""
    return next((name for name in NEEDED if importlib.util.find_spec(name) is None), "")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def command_of(home: Path, settings: NodeConfig) -> Command:
    """Starts the page's process. ``-P``: nothing in the home shall be imported."""
    names = [address.rpartition(":")[0] for address in settings.addresses]
    tls = [] if is_loopback(settings.dashboard_host) else ["--tls"]

    def command(fd: int) -> Sequence[str]:
        program = [sys.executable, "-P", "-m", MODULE]
        return [*program, "--home", str(home), "--fd", str(fd), *tls, *names]

    return command


class WebDoor:
    """Of one daemon."""

    def __init__(
        self,
        home: Path,
        settings: NodeConfig,
        command: Command | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        strangers: Callable[[str, int], bool] | None = None,
        asks_once: bool = sys.platform != "linux",
    ) -> None:
        """``strangers``: whether another account listens at an address; ``asks_once``: that takes
        so long that it is asked once for all the time for which somebody has the port."""
        self._home = home
        self._strangers, self._asks_once = strangers or strangers_listen, asks_once
        self._host, self._port = settings.dashboard_host, settings.dashboard_port
        everywhere = self._host == EVERYWHERE
        self._shown = settings.addresses[0].rpartition(":")[0] if everywhere else self._host
        self._command, self._sleep = command or command_of(home, settings), sleep
        self._told: WebPlace | None = None
        self._why = ""
        self._foreign = False
        """Another account had the port, and the token is still that of before."""

    async def keep(self) -> None:
        """Until it is cancelled; it returns only where no page is wanted, or can be. A disk that
        hangs, or a name that nobody resolves, holds up only this."""
        while True:
            try:
                if why := await asyncio.to_thread(self._hindrance):
                    await self._tell(WebPlace(why=why))
                    return
                with await self._listen() as listening:
                    await self._renew()
                    await self._tell(WebPlace(self._shown, self._port, not is_loopback(self._host)))
                    self._why = ""
                    await self._attend(listening)
            except OSError as error:  # a full disk, say: the page is not worth the daemon
                await self._not_yet(str(error))
            await self._sleep(BUSY_SECONDS)

    def _hindrance(self) -> str:
        if self._port == 0:
            return "dashboard_port in its elasticd.toml is 0"
        if name := lacking():
            return f"{name} is not installed there: pip install '{EXTRA}'"
        make_token(self._home)
        return ""

    async def _listen(self) -> socket.socket:
        """The socket, once the port is free."""
        asked = False
        while True:
            try:
                return await asyncio.to_thread(_listening, self._host, self._port)
            except OSError as error:
                why = f"{self._host}:{self._port}: {error.strerror or error}"
                taken = error.errno == errno.EADDRINUSE
            if taken and not self._foreign and not (asked and self._asks_once):
                asked = True
                self._foreign = await asyncio.to_thread(self._strangers, self._host, self._port)
            await self._not_yet(why)
            await self._sleep(BUSY_SECONDS)

    async def _renew(self) -> None:
        """If another account had the port, that may have been shown the token by who thought that
        we were there: another one counts from now on."""
        if self._foreign:
            await asyncio.to_thread(renew_token, self._home)
            self._foreign = False
            log.warning("the web page has a new token", reason=_SHOWN, cure=_SHOW)

    async def _not_yet(self, why: str) -> None:
        """Say why there is no page now: it is tried again."""
        if why != self._why:
            self._why = why
            log.warning("no web page yet", reason=why)
        with contextlib.suppress(OSError):  # a disk that takes nothing doesn't take this either
            await self._tell(WebPlace(why=f"{why} (it tries again every {BUSY_SECONDS:g} s)"))

    async def _tell(self, place: WebPlace) -> None:
        if place != self._told:
            self._told = None
            await asyncio.to_thread(tell_place, self._home, place)
            self._told = place

    async def _attend(self, listening: socket.socket) -> None:
        def told(state: tenacity.RetryCallState) -> None:
            assert state.outcome is not None and state.next_action is not None
            _tell_end(state.outcome.result(), state.next_action.sleep)

        in_a_row = tenacity.AsyncRetrying(
            wait=tenacity.wait_exponential(LEAST_PAUSE, MOST_PAUSE),
            retry=tenacity.retry_if_result(bool),
            before_sleep=told,
            sleep=self._sleep,
        )
        while True:
            await in_a_row(self._visited, listening)

    async def _visited(self, listening: socket.socket) -> int:
        """Have who knocks next served; the status of a process that failed, 0 of one that had run
        for long before."""
        await _knocked(listening)
        began = monotonic_seconds()
        status = await self._serve(listening)
        if not status or monotonic_seconds() - began <= STEADY_SECONDS:
            return status
        _tell_end(status, LEAST_PAUSE)
        await self._sleep(LEAST_PAUSE)
        return 0

    async def _serve(self, listening: socket.socket) -> int:
        """Have a process serve until it ends; its exit status."""
        fd = listening.fileno()
        try:
            with await asyncio.to_thread(open_private, self._home / LOG_FILE, "wb") as output:
                process = await asyncio.create_subprocess_exec(
                    *self._command(fd),
                    stdin=PIPE,
                    stdout=output,
                    stderr=output,
                    cwd=self._home,
                    env=of_child(os.environ, ""),
                    pass_fds=(fd,),
                    start_new_session=True,
                )
        except OSError as error:  # no descriptors are left, say: who knocked waits for the next try
            log.warning("the web page's process can't be started", reason=str(error))
            return -1
        try:
            return await process.wait()
        finally:
            await _end(process)


def strangers_listen(
    host: str,
    port: int,
    platform: str = sys.platform,
    ours: Callable[[int], bool] = listens_here,
) -> bool:
    """Whether another account's process has a port that we found taken. Root may read our token
    anyway. ``ours``: whether our account listens at one, asked where the system doesn't say whose
    a listener is."""
    if (accounts := listeners(port, platform)) is not None:
        return not accounts <= {0, os.geteuid()}
    if ours(port):
        return False
    try:
        _listening(host, port).close()
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False  # who had it has ended meanwhile


def _listening(host: str, port: int) -> socket.socket:
    found = socket.create_server((host, port), backlog=_BACKLOG)
    found.setblocking(False)
    return found


def _tell_end(status: int, pause: float) -> None:
    log.warning("the web page's process ended", status=status, log=LOG_FILE, again_in_seconds=pause)


async def _knocked(listening: socket.socket) -> None:
    """Until somebody connects, who is left to the process that will take the connection."""
    loop, knock = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(listening, knock.set)
    try:
        await knock.wait()
    finally:
        loop.remove_reader(listening)


async def _end(process: Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), END_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
