"""What ``[notify]`` names is run: a command, a webhook, a notification of macOS.

All three are a process with a clean environment, bounded in time and output. The daemon's loop only
waits for its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tenacity

from elasticd.settings.notify import DESKTOP, Hook
from elasticd.shell.control import webhook
from elasticd.shell.storage.namelessfile import nameless_file

HOOK_SECONDS = 30.0
OUTPUT_BYTES = 2048
RETRY_SECONDS = 300.0
_LONGEST_PAUSE = 60.0
_AT_ONCE = 1 << 16
_PASSED_ON = (
    "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR",
    "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip
_PATH = "/usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_SCRIPT = (
    "on run said",
    "display notification (item 1 of said) with title (item 2 of said)",
    "end run",
)


@dataclass(frozen=True, slots=True)
class HookCall:
    """A process to be run."""

    words: tuple[str, ...]
    stdin: bytes
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HookEnd:
    """How it ended; ``output`` is for who asks, never for a log: it may hold a secret."""

    status: int
    output: str


RunHook = Callable[[HookCall], Awaitable[HookEnd]]
"""Runs one.

Raises:
    OSError: it can't be started.
    TimeoutError: it took too long, and was ended.
"""


class HookError(Exception):
    """It was not told. The text has no secret; ``output`` may.

    Attributes:
        passes: it may work later.
    """

    def __init__(self, why: str, output: str = "", *, passes: bool = False) -> None:
        super().__init__(why)
        self.output, self.passes = output, passes


def call_of(hook: Hook, message: Mapping[str, Any], daemons: Mapping[str, str]) -> HookCall:
    """What is run for a hook. ``message``: what is told, ``text`` among it; ``daemons``: the
    daemon's own variables."""
    body = json.dumps(message).encode()
    clean = {name: daemons[name] for name in _PASSED_ON if name in daemons} | {"PATH": _PATH}
    if isinstance(hook, tuple):
        told = {"ELASTICD_EVENT": str(message["event"]), "ELASTICD_TEXT": str(message["text"])}
        return HookCall(hook, body, clean | told)
    if hook == DESKTOP:
        script = [word for line in _SCRIPT for word in ("-e", line)]
        title = f"elasticd: {message['event']}"
        return HookCall(("/usr/bin/osascript", *script, str(message["text"]), title), b"", clean)
    order = json.dumps({"url": hook, "body": message}).encode()
    return HookCall((sys.executable, "-I", str(Path(webhook.__file__))), order, clean)


async def tell(
    hook: Hook,
    message: Mapping[str, Any],
    run: RunHook,
    *,
    seconds: float = RETRY_SECONDS,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> HookEnd:
    """Tell it, and try again for so long if it may work later.

    Raises:
        HookError: in the end it did not work.
    """
    call, late = call_of(hook, message, os.environ), clock() + seconds
    async for attempt in tenacity.AsyncRetrying(
        wait=tenacity.wait_exponential(multiplier=1.0, max=_LONGEST_PAUSE),
        stop=lambda _: clock() >= late,
        retry=tenacity.retry_if_exception(lambda e: isinstance(e, HookError) and e.passes),
        sleep=sleep,
        reraise=True,
    ):
        with attempt:
            return await _told(hook, call, run)
    raise AssertionError("it returns or raises")


async def _told(hook: Hook, call: HookCall, run: RunHook) -> HookEnd:
    what = "the webhook" if isinstance(hook, str) and hook != DESKTOP else call.words[0]
    try:
        end = await run(call)
    except TimeoutError:
        raise HookError(f"{what} took longer than {HOOK_SECONDS:g} s and was ended") from None
    except OSError as error:
        raise HookError(f"{what} can't be started: {error.strerror}") from None
    if end.status:
        said = f" ({end.output.strip()})" if what == "the webhook" else ""
        how = f"signal {-end.status}" if end.status < 0 else f"status {end.status}"
        passes = end.status == webhook.AGAIN
        raise HookError(f"{what} ended with {how}{said}", end.output, passes=passes)
    return end


async def run_hook(call: HookCall, seconds: float = HOOK_SECONDS) -> HookEnd:
    """As :data:`RunHook` says. What it has started ends with it."""
    output = bytearray()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    stdin = nameless_file()
    try:
        os.write(stdin, call.stdin)
        os.lseek(stdin, 0, os.SEEK_SET)
        process = await asyncio.create_subprocess_exec(
            *call.words,
            stdin=stdin,
            stdout=writing,
            stderr=writing,
            cwd="/",
            env=dict(call.environment),
            start_new_session=True,
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(stdin)
        os.close(writing)
    loop = asyncio.get_running_loop()
    loop.add_reader(reading, _take, reading, output, loop)
    try:
        async with asyncio.timeout(seconds):
            status = await process.wait()
        _take(reading, output, loop)
        return HookEnd(status, bytes(output).decode(errors="replace"))
    finally:
        loop.remove_reader(reading)
        os.close(reading)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _take(reading: int, output: bytearray, loop: asyncio.AbstractEventLoop) -> None:
    """Read on, so that it can go on writing; keep only the beginning."""
    with contextlib.suppress(BlockingIOError):
        data = os.read(reading, _AT_ONCE)
        output += data[: OUTPUT_BYTES - len(output)]
        if not data:
            loop.remove_reader(reading)
