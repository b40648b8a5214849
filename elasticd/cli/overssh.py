"""Commands on other machines, over ssh: several at once, each for a limited time."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import threading
from asyncio.subprocess import Process
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from elasticd.cli.interrupts import SIGNALS
from elasticd.cli.invitations import Answer
from elasticd.errors import OperationError
from elasticd.supervision.roster import kill_group

SSH = "ssh"
OPTIONS = (
    # It asks nothing: nobody could answer several at once.
    "-o", "BatchMode=yes",
    "-o", "ConnectTimeout=15",
    # A connection that is kept for later would hold our pipes open.
    "-o", "ControlMaster=no",
    "-T",
)  # fmt: skip
AT_ONCE = 8
"""Below what sshd takes of one machine by default while they log in (MaxStartups)."""
_KEPT_BYTES = 64 * 1024
"""Of what a command prints; the end."""


def check() -> None:
    """Raises OperationError: there is no ssh here."""
    if shutil.which(SSH) is None:
        raise OperationError(f"{SSH}: there is no such program here")


def run(
    calls: Sequence[tuple[str, str]],
    said: str,
    seconds: float,
    ended: Callable[[int, Answer], None],
) -> None:
    """Run commands, each of a host and a line for its shell. No process is left behind, also after
    Ctrl-C.

    Args:
        said: to each on its standard input.
        seconds: for each.
        ended: hears of each as it ends; the number is that of the call.
    """
    _run(_all(calls, said.encode(), seconds, ended))


def _run(work: Coroutine[Any, Any, None]) -> None:
    """As ``asyncio.run``. The first of these signals cancels ``work``, which may tidy up in peace;
    KeyboardInterrupt comes when it has ended. Raised in the midst of a loop it would lame that.
    """
    if asyncio.run(_cancelled(work)):
        raise KeyboardInterrupt


async def _cancelled(work: Coroutine[Any, Any, None]) -> bool:
    """Whether a signal has ended the work."""
    loop, task, came = asyncio.get_running_loop(), asyncio.ensure_future(work), False

    def stop() -> None:
        nonlocal came
        if not came:
            came = True
            task.cancel()

    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not came:
            raise
    return came


async def _all(
    calls: Sequence[tuple[str, str]],
    said: bytes,
    seconds: float,
    ended: Callable[[int, Answer], None],
) -> None:
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, host: str, line: str) -> None:
        async with turns:
            answer = await _answer([SSH, *OPTIONS, host, line], said, seconds)
        ended(number, answer)

    tasks = [asyncio.create_task(one(at, *call)) for at, call in enumerate(calls)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            if not task.cancelling():  # twice would break off how it ends its process
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _answer(command: Sequence[str], said: bytes, seconds: float) -> Answer:
    process = await _started(command)
    try:
        assert process.stdin and process.stdout and process.stderr
        async with asyncio.timeout(seconds):
            _, out, err, status = await asyncio.gather(
                _say(process.stdin, said),
                _end_of(process.stdout),
                _end_of(process.stderr),
                process.wait(),
            )
        return Answer(status, out, err)
    except TimeoutError:
        return Answer(None, "", "")
    finally:
        await _end(process)


async def _started(command: Sequence[str]) -> Process:
    """Once it is begun it is started to the end: what was cancelled in the midst of that could end
    the process, but not those that it has begun itself."""
    pipe = asyncio.subprocess.PIPE
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _end(await starting)
        raise


async def _end(process: Process) -> None:
    if process.returncode is None:
        kill_group(process.pid)
        await process.wait()
    # It may have ended before its pipes are known to have. Left open when the loop ends, they would
    # complain to the user, as the program ends. There is no public way to close them.
    cast(Any, process)._transport.close()


async def _say(stream: asyncio.StreamWriter, said: bytes) -> None:
    # It may have ended without listening.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(said)
        await stream.drain()
    stream.close()


async def _end_of(stream: asyncio.StreamReader) -> str:
    kept = b""
    while piece := await stream.read(_KEPT_BYTES):
        kept = (kept + piece)[-_KEPT_BYTES:]
    return kept.decode("utf-8", "replace")
