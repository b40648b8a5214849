"""A process that is supervised: one that we started, or one that a daemon before us did.

An adopted process is no child of ours: it can't be waited for, only watched, and how it ended is
known only if it said so.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

import psutil

from elasticd.supervision.birth import UNSEEN, birth_or_none, is_same
from elasticd.supervision.roster import ChildEntry, end_session, kill_group


class OwnProcess:
    """A child of this process, until it is reaped."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self.pid = popen.pid
        try:
            self.create_time = psutil.Process(popen.pid).create_time()
        except UNSEEN:  # it has ended already, and macOS tells little about zombies
            self.create_time = time.time()
        self.born = birth_or_none(popen.pid)

    def signal(self, number: int) -> None:
        """SIGKILL goes to all of its session."""
        if number == signal.SIGKILL:
            kill_group(self.pid)
        else:
            os.kill(self.pid, number)  # unreaped, so the pid is still its own

    def reap(self) -> int | None:
        """Its exit code, or minus the signal, once it has ended."""
        # While the zombie holds the pid, its group can't be anybody else's.
        kill_group(self.pid)
        return self._popen.wait()


class AdoptedProcess:
    """One that is named by its pid and start time."""

    def __init__(self, entry: ChildEntry) -> None:
        self._entry = entry
        self.pid, self.create_time = entry.pid, entry.create_time

    def signal(self, number: int) -> None:
        """SIGKILL goes to all of its session; nothing if the process has ended."""
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self.pid)
            if not is_same(self.pid, self._entry.born, self.create_time):
                return
            if number == signal.SIGKILL:
                kill_group(self.pid)
            else:
                process.send_signal(number)

    def reap(self) -> int | None:
        """None: not known. A process that we started before an exec is still our child."""
        end_session(self._entry)
        try:
            _, status = os.waitpid(self.pid, 0)
        except ChildProcessError:
            return None
        return os.waitstatus_to_exitcode(status)
