"""elasticd.toml is followed while the daemon runs.

As with the jobs folder the kernel's events are hints, and a look at the file is the truth. macOS
tells of a folder and of all below it, so that each file of each job would wake the daemon: there
the file is looked at every few seconds. A file that is being written says for a moment something
else, or nothing: it counts once it has been left alone. One that is gone or wrong changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog

from elasticd.errors import ConfigError
from elasticd.pasting import of_home, quoted
from elasticd.settings import config
from elasticd.settings.changing import change
from elasticd.settings.config import NodeConfig, showable, values_of
from elasticd.settings.localhomes import is_local
from elasticd.settings.rules import shown
from elasticd.shell.storage.quiet import QUIET_SECONDS, seconds_until_whole
from elasticd.shell.storage.watching import FolderWatch, Hints
from elasticd.shell.tasks import Tasks

LOOK_SECONDS = 30.0
"""Between two looks at the most: events get lost, and a link leads to where none are told."""
POLL_SECONDS = 2.0
"""Between two looks where no events are told."""

log = structlog.get_logger(__name__)

Tell = Callable[[str, str, dict[str, Any]], None]
"""Of an event: its kind, the reason, further fields."""
_Signature = tuple[int, ...] | None


class SettingsWatch:
    """Of one file. Runs in the event loop; the disk is asked in threads."""

    def __init__(
        self,
        home: Path,
        path: Path,
        running: NodeConfig,
        take: Callable[[NodeConfig], None],
        tell: Tell,
        wrong: Callable[[str], None] = lambda reason: None,
        system: str = sys.platform,
    ) -> None:
        """``running``: what the file said when the daemon read it. ``take``: what is to hold from
        now on. ``wrong``: why nothing of the file as it is now is taken; empty: it can be."""
        self._home, self._path, self._running = home, path, running
        self._take, self._tell, self._wrong = take, tell, wrong
        self._hint = asyncio.Event()
        self._folder = FolderWatch()
        self._seen: _Signature = None
        self._found = running
        self._gone_at: float | None = None
        self._tasks, self._begun = Tasks("following elasticd.toml"), False
        self._polled = system == "darwin"

    def start(self) -> None:
        self._tasks.keep("following elasticd.toml", self._run)

    async def close(self) -> None:
        await self._tasks.cancel()
        await self._folder.close()

    async def _run(self) -> None:
        if not self._begun:
            self._begun = True
            await self._watch()
        self._seen = None  # after a failure what the file says is read again
        while True:
            self._hint.clear()
            pause = await self._look()
            if self._polled:
                pause = min(pause, POLL_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._hint.wait()

    async def _watch(self) -> None:
        if self._polled:
            return
        hints = Hints(asyncio.get_running_loop(), self._hint.set)
        try:
            await self._folder.start(self._path.parent, hints, recursive=False)
        except OSError:  # the system's limit of watches
            self._polled = True

    async def _look(self) -> float:
        """Deal with what is new; returns after how many seconds to look again."""
        signature, wait = await asyncio.to_thread(_signature, self._path)
        if signature is not None:
            self._gone_at = None
        elif self._gone_at is None:  # an editor may be about to put another in its place
            self._gone_at = time.monotonic()
        if signature == self._seen:
            return LOOK_SECONDS
        if self._gone_at is not None:
            wait = self._gone_at + QUIET_SECONDS - time.monotonic()
        if wait > 0:
            return wait
        self._seen = signature
        if signature is None:
            self._refused_whole(
                f"{self._path} is gone, or empty: what it said holds until the daemon ends"
            )
            return LOOK_SECONDS
        found = await asyncio.to_thread(self._read)
        if (await asyncio.to_thread(_signature, self._path))[0] != signature:
            return QUIET_SECONDS  # it was replaced meanwhile: which of the two was read, who knows
        if isinstance(found, ConfigError):
            self._refused_whole(f"{found}; what holds stays as it is")
        else:
            self._wrong("")
            self._changed(found)
        return LOOK_SECONDS

    def _read(self) -> NodeConfig | ConfigError:
        try:
            return config.load(self._home, self._path)
        except ConfigError as error:
            return error

    def _changed(self, found: NodeConfig) -> None:
        found_now = change(self._running, found)
        if found_now.taken:
            self._take(found_now.config)
        before, self._found = values_of(self._found), found
        self._running = found_now.config
        if found_now.taken:
            values = values_of(found)
            said = ", ".join(
                f"{key} = {shown(showable(key, values[key]))}" for key in found_now.taken
            )
            fields = {"keys": list(found_now.taken)}
            self._tell("settings_taken", f"{self._path.name}: from now on {said}", fields)
        if new := [key for key in found_now.later if values_of(found)[key] != before[key]]:
            self._refused(
                f"{self._path}: {', '.join(new)} can't change while the daemon runs: that holds"
                f" when it is started again ({quoted(self._restart())})",
                new,
            )

    def _restart(self) -> str:
        home = self._home
        return of_home("service restart", home) if is_local(home) else "elasticctl service restart"

    def _refused_whole(self, reason: str) -> None:
        self._wrong(reason)
        self._refused(reason)

    def _refused(self, reason: str, keys: Sequence[str] = ()) -> None:
        self._tell("settings_refused", reason, {"keys": list(keys)})


def _signature(path: Path) -> tuple[_Signature, float]:
    """What changes with the file, and how long to wait until it is whole; None: it is gone, or
    empty."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None, 0.0
    except OSError:  # said when it is read
        return (0,), 0.0
    if not found.st_size:  # a disk that was full when it was written, say
        return None, 0.0
    signature = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    whole = found.st_ctime_ns > found.st_mtime_ns
    return signature, seconds_until_whole(path, found.st_mtime_ns / 1e9, whole=whole)
