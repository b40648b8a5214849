"""One run of a plain job's script: its process, what it prints, whether it still does something."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from elasticd.ipc.child import CHILD_VARIABLE
from elasticd.recipes.kept import HOSTS
from elasticd.supervision.birth import UNSEEN

STOPPED_SECONDS = 2.0
"""A process that is stopped (SIGSTOP) for so long hangs."""
_LOOK_SECONDS = 1.0
_IDLE_SHARE = 0.005
"""Of one core: who takes less CPU time does nothing."""
_TAIL_BYTES = 8192
_DRAIN_SECONDS = 1.0
"""What it has printed is waited for when it has ended; what it has started may still hold on to
its output."""
_GUARD = 'while read -r _; do :; done; kill -s KILL -- "-$1" 2>/dev/null'
"""Ends the script when who has started it is gone, however that ended: its end of a pipe is closed
then."""
_writing = threading.Lock()
_unfinished = False
"""The last that was printed here by a script had no newline behind it."""


@dataclass(frozen=True)
class Ring:
    """What MLX is told of the script's group."""

    rank: int
    hosts: tuple[str, ...]
    """``address:port`` of each rank."""

    def variables(self, folder: Path) -> dict[str, str]:
        """Those that ``mlx.launch`` sets. Alone there is no host file, as MLX has no ring of
        one."""
        path, size = folder / HOSTS, len(self.hosts)
        told = {
            "MLX_RANK": str(self.rank),
            "MLX_WORLD_SIZE": str(size),
            "MLX_GLOBAL_RANK": str(self.rank),
            "MLX_LOCAL_RANK": "0",
        }
        if size > 1:
            path.write_text(json.dumps([[host] for host in self.hosts]))
            told["MLX_HOSTFILE"] = str(path)
        return told


class Script:
    """From its start on."""

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        variables = {k: v for k, v in environment.items() if k != CHILD_VARIABLE}
        self._began = self._active = self._looked = time.monotonic()
        self._stopped: float | None = None
        self._cpu = 0.0
        self._tail = b""
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "sh", str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._printing = threading.Thread(target=self._pass_on, daemon=True)
        self._printing.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ran_seconds(self) -> float:
        return time.monotonic() - self._began

    def status(self) -> int | None:
        """How it has ended: exit code, or minus the signal; None: it runs."""
        return self._process.poll()

    def tail(self) -> str:
        """The last that it has printed."""
        return self._tail.decode(errors="replace")

    def idle_seconds(self) -> float:
        """For how long it has neither printed anything nor taken CPU time."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            cpu = self._cpu_seconds()
            if cpu - self._cpu > _IDLE_SHARE * (now - self._looked):
                self._active = now
            self._cpu, self._looked = cpu, now
        return now - self._active

    def stopped_seconds(self) -> float:
        """For how long it has been stopped by a signal."""
        now = time.monotonic()
        with contextlib.suppress(*UNSEEN):
            if psutil.Process(self.pid).status() == psutil.STATUS_STOPPED:
                self._stopped = now if self._stopped is None else self._stopped
                return now - self._stopped
        self._stopped = None
        return 0.0

    def end(self) -> None:
        """Kill it, and all that it has started."""
        if self._process.returncode is None:
            self._kill_group()
            self._process.wait()
        self.ended()

    def ended(self) -> None:
        """It has ended: end what it has started, too, see what was printed at last, and take the
        guard away."""
        if self._guard.returncode is not None:
            return
        self._kill_group()
        self._printing.join(_DRAIN_SECONDS)
        self._guard.kill()
        self._guard.wait()
        assert self._guard.stdin is not None and self._process.stdout is not None
        self._guard.stdin.close()
        if not self._printing.is_alive():
            self._process.stdout.close()

    def _kill_group(self) -> None:
        # No other process gets the number of a group that has members.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _cpu_seconds(self) -> float:
        """Of it and of what it has started."""
        total = 0.0
        with contextlib.suppress(*UNSEEN):
            own = psutil.Process(self.pid)
            for process in (own, *own.children(recursive=True)):
                with contextlib.suppress(*UNSEEN):
                    times = process.cpu_times()
                    total += times.user + times.system
        return total

    def _pass_on(self) -> None:
        """What it prints goes to our own output, and so into the rank's log."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while data := os.read(fd, 1 << 16):
            self._active = time.monotonic()
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
            with contextlib.suppress(OSError):
                _write_all(data)


def said(text: str) -> None:
    """A line of our own in the rank's log."""
    with contextlib.suppress(OSError):
        _write_all(f"elasticd: {text}\n".encode(errors="backslashreplace"), begins_line=True)


def _write_all(data: bytes, *, begins_line: bool = False) -> None:
    global _unfinished
    with _writing:
        view = memoryview(b"\n" + data if begins_line and _unfinished else data)
        _unfinished = not data.endswith(b"\n")
        while view:
            view = view[os.write(1, view) :]
