"""The keeper of a local cluster: starts a daemon again that died, as launchd and systemd do for
services.

``python -m elasticd.cli.keeper HOME PROGRAM…``, detached, one to a home; ``local up --keep`` starts
it and ``local down`` ends it. A daemon that was told to end takes its daemon.json along and stays
away. One that ended of a failure, a full disk say, leaves it, and is tried again and again, more
and more seldom.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from elasticd.cli.daemons import LOG_FILE, let_live, name, start, start_daemon
from elasticd.client.processes import find, find_daemon
from elasticd.errors import INCURABLE
from elasticd.settings.localhomes import node_homes
from elasticd.settings.places import DAEMON_FILE
from elasticd.shell.clock import monotonic_seconds
from elasticd.shell.storage import ownlog
from elasticd.supervision.logs import RotatedLog

KEEPER_FILE = "keeper.json"
KEEPER_LOG = "keeper.log"
KEEPER_LOG_BYTES = 1 << 20
"""What it has at most before what it says becomes the older part; of these there is one."""
POLL_SECONDS = 0.1
END_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
STEADY_SECONDS = 10.0
"""A daemon that lived so long is not one that dies at its start."""


@dataclass(slots=True)
class RestartPauses:
    """When one daemon may be started again. Pure; times are monotonic seconds."""

    pause: float = FIRST_PAUSE_SECONDS
    started: float | None = None
    due: float | None = None

    def may_start(self, now: float) -> bool:
        """It does not run: whether the pause that its deaths have earned is over."""
        if self.due is None:
            steady = self.started is None or now - self.started >= STEADY_SECONDS
            longer = min(2 * self.pause, LONGEST_PAUSE_SECONDS)
            self.pause = FIRST_PAUSE_SECONDS if steady else longer
            self.due = now + self.pause
        return now >= self.due

    def starts(self, now: float) -> None:
        """It is being started."""
        self.started, self.due = now, None


@dataclass(slots=True)
class Kept:
    """One node, as the keeper sees it."""

    home: Path
    program: Sequence[str]
    pauses: RestartPauses = field(default_factory=RestartPauses)
    child: subprocess.Popen[bytes] | None = None
    """What was started here and has not ended."""
    failed: str = ""
    """Why it could not even be started, the last time."""

    def look(self, now: float) -> bool:
        """Start its daemon if it died; whether anything was said of it."""
        try:
            spoke = self._look(now)
        except OSError as error:  # a full disk, say: it is as if a daemon had died at its start
            before, self.failed = self.failed, str(error)
            spoke = before != self.failed
            if spoke:
                print(f"{self.home.name}: its daemon can't be started: {error}", flush=True)
        return spoke

    def _look(self, now: float) -> bool:
        spoke = False
        if self.child is not None and (code := self.child.poll()) is not None:
            self.child = None
            if code in INCURABLE:
                why = f"no restart cures that; {self.home / LOG_FILE} says what does"
                print(f"{self.home.name}: ended with status {code}; {why}", flush=True)
                (self.home / DAEMON_FILE).unlink(missing_ok=True)
                spoke = True
        died = (self.home / DAEMON_FILE).exists() and find_daemon(self.home) is None
        if self.child is None and died and self.pauses.may_start(now):
            self.pauses.starts(now)
            self.child = start_daemon(self.home, self.program)
            self.failed = ""
            print(f"{self.home.name}: its daemon died; started {self.child.pid}", flush=True)
            spoke = True
        return spoke

    def let_go(self) -> None:
        """End what has not got as far as to name itself: nobody else would find it."""
        daemon, child = find_daemon(self.home), self.child
        if child is not None and (daemon is None or daemon.pid != child.pid):
            child.kill()
            child.wait()


def keep(home: Path, program: Sequence[str], stopping: threading.Event) -> None:
    """Look after the daemons of a local cluster until ``stopping``."""
    kept = [Kept(folder, program) for folder in node_homes(home)]
    log = RotatedLog(home / KEEPER_LOG, KEEPER_LOG_BYTES, keep=1)
    with contextlib.redirect_stdout(ownlog.forgiving(sys.stdout)):
        while not stopping.wait(POLL_SECONDS):
            spoke = [one.look(monotonic_seconds()) for one in kept]
            if any(spoke):
                with contextlib.suppress(OSError):  # a full disk: it is tried when more is said
                    log.rotate()
    for one in kept:
        one.let_go()


def keeper_of(home: Path) -> int | None:
    """The pid of the keeper that is at work there."""
    keeper = find(home / KEEPER_FILE)
    return keeper.pid if keeper is not None else None


def start_keeper(home: Path, program: Sequence[str]) -> None:
    """Start the keeper of ``home``, where there must be none. It starts daemons as ``program``."""
    command = [sys.executable, "-P", "-m", "elasticd.cli.keeper", str(home), *program]
    keeper = start(command, home, home / KEEPER_LOG)
    name(home / KEEPER_FILE, psutil.Process(keeper.pid))
    let_live(keeper)


def end_keeper(home: Path) -> bool:
    """End the keeper of ``home``; whether there was one."""
    keeper = find(home / KEEPER_FILE)
    if keeper is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            keeper.terminate()
            try:
                keeper.wait(END_SECONDS)
            except psutil.TimeoutExpired:
                keeper.kill()
                keeper.wait(END_SECONDS)
    (home / KEEPER_FILE).unlink(missing_ok=True)
    return keeper is not None


def main() -> int:
    """Serve until SIGTERM."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    os.umask(0o077)
    keep(Path(sys.argv[1]), sys.argv[2:], stopping)
    return 0


if __name__ == "__main__":
    sys.exit(main())
