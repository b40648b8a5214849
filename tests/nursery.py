"""Starts daemons and commands by fork, from a process in which Python and elasticd are loaded.

To load them takes half a second of a processor, for each daemon and each command, and clusters of
tests start thousands. What is forked here is a process like any other: with its own pid, session,
folder, environment and output, and SIGKILL ends it. Only the kernel shows the nursery's words for
it, not its own. It begins where the imports end, as ``python -m elasticd.shell.daemon`` does.

Not from here, but by a Python of its own, starts what Python or the loader would read from another
environment at its start; also everything on macOS, where a fork without exec is not safe.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn, cast

DAEMON = "elasticd.shell.daemon"
COMMAND = "elasticctl"
LOADED = {
    DAEMON: (DAEMON,),
    COMMAND: (
        "elasticd.cli.entry", "elasticd.cli.commands", "elasticd.cli.showing", "elasticd.cli.jobs",
        "elasticd.cli.logs",
    ),
}  # fmt: skip
"""What a daemon loads, and nothing else, else none would miss an import that it lacks. Of commands
what most of them load."""
NURSERIES = {DAEMON: 2, COMMAND: 1}
"""Each has a seed of its own for hashes: nodes must not agree by having the same one."""

_MESSAGE_BYTES = 1 << 17
_POLL_SECONDS = 0.01
READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "OPENSSL_", "SSL_")


class Forked:
    """What :class:`subprocess.Popen` is of other processes."""

    def __init__(self, ended: Callable[[], int | None], pid: int) -> None:
        """``ended``: with which exit code, or None while it runs."""
        self._ended = ended
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or None while it runs; negative: of which signal it died."""
        if self.returncode is None:
            self.returncode = self._ended()
        return self.returncode

    @property
    def runs(self) -> bool:
        """Whatever has been written into :attr:`returncode`."""
        return self._ended() is None

    def wait(self, timeout: float) -> int:
        """As of Popen.

        Raises:
            subprocess.TimeoutExpired: it runs on.
        """
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(_POLL_SECONDS)
        return code

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class Nurseries:
    """Of one process that runs tests. They end with it."""

    def __init__(self) -> None:
        self._loaded = _read_at_start(os.environ)
        self._all: dict[str, list[_Nursery]] = {name: [] for name in LOADED}
        self._turn = threading.Lock()

    def can_start(self, environment: Mapping[str, str]) -> bool:
        """Whether what starts with this environment would be as if Python had been started."""
        return sys.platform == "linux" and _read_at_start(environment) == self._loaded

    def start(
        self,
        program: str,
        words: Sequence[str | Path],
        folder: Path,
        output: tuple[IO[bytes], IO[bytes]],
        environment: Mapping[str, str],
    ) -> Forked:
        """Start DAEMON or COMMAND with these words behind it.

        Args:
            program: a daemon gets a session of its own.
            folder: where it starts.
            output: what it has as stdout and stderr.
            environment: all of its variables; :meth:`can_start` has said yes.
        """
        with self._turn:
            there = self._all[program]
            nursery = there.pop(0) if len(there) == NURSERIES[program] else _Nursery(program)
            there.append(nursery)  # they take turns
        asked = {
            "program": program,
            "words": [str(word) for word in words],
            "folder": str(folder),
            "environment": dict(environment),
        }
        pid = nursery.ask(asked, [file.fileno() for file in output])
        assert pid is not None
        return Forked(lambda: nursery.ask({"ended": pid}), pid)

    def run(
        self, program: str, words: Sequence[str | Path], env: Mapping[str, str], seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """As subprocess.run() does it: to its end, with what it printed.

        Raises:
            subprocess.TimeoutExpired: it did not end; it was killed.
        """
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = self.start(program, words, Path.cwd(), (out, err), env)
            try:
                code = child.wait(seconds)
            finally:
                child.kill()
            said = []
            for file in (out, err):
                file.seek(0)
                said.append(file.read().decode())
        return subprocess.CompletedProcess([program, *words], code, *said)

    def close(self) -> None:
        """End the nurseries. What they have started is left to init, as it is by a shell."""
        for nursery in itertools.chain(*self._all.values()):
            nursery.close()


class _Nursery:
    """A process that forks, from its parent's side."""

    def __init__(self, program: str) -> None:
        self._turn = threading.Lock()
        """Whoever has asked gets the next answer: a test may run two commands at once."""
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(other.fileno()), program],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
            )

    def ask(self, message: Mapping[str, object], files: Sequence[int] = ()) -> int | None:
        data = json.dumps(message).encode()
        assert len(data) < _MESSAGE_BYTES, len(data)
        with self._turn:
            socket.send_fds(self._socket, [data], files)
            answer = self._socket.recv(_MESSAGE_BYTES)
        assert answer, f"the nursery has ended with {self._process.wait()}"
        return cast("int | None", json.loads(answer))

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k.startswith(READ_AT_START)}


# --- the nursery's own process ------------------------------------------------------------------


def _serve(asked: socket.socket) -> Callable[[], object]:
    """Until the tests end. Each child returns, too: with what it is to run."""
    codes: dict[int, int] = {}

    def reap(*_: object) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            codes[pid] = os.waitstatus_to_exitcode(status)

    signal.signal(signal.SIGCHLD, reap)
    while True:
        data, files, _, _ = socket.recv_fds(asked, _MESSAGE_BYTES, 2)
        if not data:
            return lambda: 0
        message = json.loads(data)
        if "ended" in message:
            asked.send(json.dumps(codes.get(message["ended"])).encode())
            continue
        assert threading.active_count() == 1, "a fork would leave a thread behind"
        # Its end is noted after its birth, and its pid may have been another's.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            asked.close()
            return _born(message, files)
        codes.pop(pid, None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        for file in files:
            os.close(file)
        asked.send(json.dumps(pid).encode())


def _born(message: dict[str, object], files: Sequence[int]) -> Callable[[], object]:
    """Become what was asked for."""
    program, words = str(message["program"]), cast("list[str]", message["words"])
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
        os.close(file)
    if program == DAEMON:
        os.setsid()
    os.environ.clear()
    os.environ.update(cast("dict[str, str]", message["environment"]))
    time.tzset()
    tempfile.tempdir = None
    os.chdir(str(message["folder"]))
    if program == DAEMON:
        from tests import cradle  # which is loaded, too

        cradle.install(sys.modules["elasticd.shell.children.launch"], READ_AT_START)
        sys.argv = [str(sys.modules[DAEMON].__file__), *words]
        sys.orig_argv = [sys.executable, "-P", "-m", DAEMON, *words]
        return cast("Callable[[], object]", sys.modules[DAEMON].main)
    command = str(Path(sys.executable).with_name(COMMAND))
    sys.argv = [command, *words]
    sys.orig_argv = [sys.executable, command, *words]
    return cast("Callable[[], object]", importlib.import_module("elasticd.cli").main)


def _main() -> NoReturn:
    asked = socket.socket(fileno=int(sys.argv[1]))
    asked.set_inheritable(False)
    for name in LOADED[sys.argv[2]]:
        importlib.import_module(name)
    sys.path.insert(0, str(Path(__file__).parents[1]))
    importlib.import_module("tests.cradle")
    del sys.path[0]
    gc.collect()
    gc.freeze()
    run = _serve(asked)
    sys.exit(cast("int", run()))


if __name__ == "__main__":
    _main()
