"""A script without ``if __name__ == "__main__":`` that starts processes.

Where multiprocessing starts a process by spawn or forkserver, as on macOS, that runs the script's
top level first. Without the guard it would train the whole job by itself, and a pool would begin
its workers anew for ever. So the process that trains is to know of it, wherever it waits, and to
end. It makes a pipe with a name, which those that it starts find by their environment.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from multiprocessing import process
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from elasticd.errors import UsageError
from elasticd.train.finishing import finish_failed
from elasticd.train.threads import start

PIPE_VARIABLE = "ELASTICD_RERUNS"
_RUN, _START, _ASKED = b"r", b"s", b"?"
"""What is in the pipe, a byte each."""
_CAME_TO = {_RUN: "elasticd.Run", _START: "where processes are started"}
_ANSWER_SECONDS = _END_SECONDS = 5.0


def rerun_script() -> str | None:
    """The script whose top level runs in this process just now because multiprocessing prepares
    it. None once that is done: what the process is for may make a run."""
    again = sys.modules.get("__mp_main__")
    if again is None or again is sys.modules.get("__main__"):
        return None
    return getattr(again, "__file__", None) if _is_prepared() else None


def _is_prepared() -> bool:
    """As multiprocessing itself asks before it lets such a process start others."""
    return getattr(process.current_process(), "_inheriting", False)


def refuse_rerun() -> None:
    """For :class:`elasticd.Run`.

    Raises:
        UsageError: it is made where the script's top level is run again.
    """
    if (script := rerun_script()) is not None:
        _tell(_RUN, script)
        raise UsageError(_reason(_RUN))


def hear_errors() -> None:
    """For ``import elasticd``: where the script's top level is run again, what it raises by
    starting processes is told, too; and what was told isn't printed, by many at once."""
    if (script := rerun_script()) is None:
        return
    before = sys.excepthook

    def ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        refused = str(error) == _reason(_RUN)
        if (not refused and not _starts(error)) or not _tell(_RUN if refused else _START, script):
            before(kind, error, trace)

    sys.excepthook = ended


def _starts(error: BaseException) -> bool:
    """Whether multiprocessing has raised that, because processes are started there."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code.co_name == "_check_not_importing_main"


def _reason(word: bytes) -> str:
    return (
        "a process that multiprocessing has started runs the script from its first line again, as"
        f" on macOS all do, and came to {_CAME_TO[word]}: put what trains, and what starts"
        ' processes, below `if __name__ == "__main__":`'
    )


def _mark(script: str | Path) -> str:
    """The pipe's name: a program that the script starts may use multiprocessing, too, and has its
    environment."""
    return hashlib.sha256(os.fsencode(os.path.realpath(script))).hexdigest()[:16]


def _tell(word: bytes, script: str) -> bool:
    """Tell the process that trains, if this is its script, and it lives."""
    name = os.environ.get(PIPE_VARIABLE, "")
    if os.path.basename(name) != _mark(script):
        return False
    try:
        pipe = os.open(name, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(pipe, word)
    except OSError:
        return False
    finally:
        os.close(pipe)
    return True


class Reruns:
    """What this process, which trains, is told by those that it starts."""

    def __init__(self) -> None:
        self._folder, self._pipe, self._owner = "", -1, -1
        self._reason = ""
        self._answered = threading.Event()
        self._saying, self._said = threading.Lock(), False

    def watch(self, script: Path, leave: Callable[[int], NoReturn]) -> bool:
        """End this process when ``script`` is found to be run again: as one that has failed, and by
        ``leave`` with its exit status. False if this was called before, or no pipe can be made:
        then nobody hears of it."""
        if self._folder:
            return False
        try:
            self._folder = tempfile.mkdtemp(prefix="elasticd-reruns-")
            name = os.path.join(self._folder, _mark(script))
            os.mkfifo(name, 0o600)
            self._pipe = os.open(name, os.O_RDWR | os.O_CLOEXEC)  # so it never ends
        except OSError:
            return False
        self._owner, os.environ[PIPE_VARIABLE] = os.getpid(), name
        atexit.register(self.close)
        start("reruns", lambda: self._listen(leave))
        return True

    def _listen(self, leave: Callable[[int], NoReturn]) -> None:
        ending = False
        while word := self._read():
            if word == _ASKED:
                self._answered.set()
            elif word in _CAME_TO and not ending:
                ending, self._reason = True, _reason(word)
                start("rerun", lambda: _end(leave))

    def _read(self) -> bytes:
        try:
            return os.read(self._pipe, 1)
        except OSError:  # the script has closed all that is open
            return b""

    def reason(self) -> str:
        """Why this process is to end, by what it was told until now; empty: it was told nothing."""
        if not self._reason and self._owner == os.getpid():  # nobody tells what it forks
            self._answered.clear()
            with contextlib.suppress(OSError):
                os.write(self._pipe, _ASKED)  # behind what was told
                self._answered.wait(_ANSWER_SECONDS)
        return self._reason

    def say(self, say: Callable[[str], object]) -> bool:
        """At the end of this process: say the reason as a traceback's last line would, once, and
        not be back before. Whether there is one."""
        if not (reason := self.reason()):
            return False
        with self._saying:
            if not self._said:
                _end_tracker()
                say(f"{UsageError.__module__}.{UsageError.__qualname__}: {reason}")
                self._said = True
        return True

    def close(self) -> None:
        """No pipe is left behind."""
        if self._owner == os.getpid():
            shutil.rmtree(self._folder, ignore_errors=True)


def _end(leave: Callable[[int], NoReturn]) -> NoReturn:
    finish_failed(lambda: leave(1))
    leave(1)


def _end_tracker() -> None:
    """What multiprocessing's tracker says of semaphores that nobody has freed, as where workers
    were ended while they began, shall stand above the reason, and not behind it."""
    if (tracking := sys.modules.get("multiprocessing.resource_tracker")) is not None:
        ending = threading.Thread(target=tracking._resource_tracker._stop, daemon=True)
        ending.start()
        ending.join(_END_SECONDS)  # a process that lives on holds it


RERUNS = Reruns()
"""Of this process: who begins to train is not who ends."""
