"""Forks a daemon's trainers and reducers from processes that have loaded Python, MLX and elasticd.

To load them takes a third of a second of a processor for each trainer and half of that for each
reducer, spares too, and tests start thousands. A daemon that tests/nursery.py has forked has two of
these processes, one for each role, from when it needs the first of that role. What they fork is the
daemon's own child, in a session of its own, with its own folder, environment, command line and
output, and begins where the imports end.

By a Python of its own starts what would read another environment while it loads, what has another
interpreter, whose folder has a module of the name of one that is loaded, and all of a daemon that
was put into another control group.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import importlib.machinery
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

LOADED = {
    "elasticd.train": (
        "elasticd.train.link.host", "elasticd.train.link.daemonseat",
        "elasticd.train.steps.randomness", "elasticd.train.steps.relief",
        "elasticd.train.steps.seat",
    ),
    "elasticd.reducer": (
        "elasticd.reducer.__main__", "elasticd.reducer.form", "elasticd.reducer.greeting",
    ),
}  # fmt: skip
"""What each loads by itself before it waits for its daemon, and nothing else, else none would miss
an import that it lacks."""
READ_BY_LIBRARIES = ("MLX_", "OPENBLAS_", "OMP_")

_MESSAGE_BYTES = 1 << 17
_READY = b"ready"
_ROOM = "ELASTICD_TESTS_ROOM"
"""A variable that only takes room, for the environments of those who are forked."""
_ROOM_BYTES = 1 << 14
_SET_CHILD_SUBREAPER = 36
_OF_MODULES = tuple(importlib.machinery.all_suffixes())


def install(launch: ModuleType, read_at_start: tuple[str, ...]) -> None:
    """In a daemon: have its children forked. ``launch`` is the module that starts them,
    ``read_at_start`` how variables begin that Python or the loader reads."""
    setattr(launch, "subprocess", Cradles(read_at_start + READ_BY_LIBRARIES))  # noqa: B010


class Cradles:
    """What the daemon uses of the module subprocess."""

    DEVNULL = subprocess.DEVNULL

    def __init__(self, fixed: tuple[str, ...]) -> None:
        self._fixed, self._group = fixed, _group()
        self._all = dict[str, _Cradle]()

    def Popen(
        self, command: Sequence[str], cwd: Path, env: Mapping[str, str], stdout: int, **rest: Any
    ) -> subprocess.Popen[bytes] | Born:
        """Only one thread of a daemon starts children."""
        start, module = list(command[:2]), command[-1]
        if start == [sys.executable, "-m"] and module in LOADED and _group() == self._group:
            cradle = self._all.get(module)
            if cradle is None or cradle.ended:
                cradle = self._all[module] = _Cradle(module, env)
            if self._fixed_of(env) == self._fixed_of(cradle.environment):
                pid = cradle.fork(command, Path(cwd).absolute(), env, stdout)
                if pid is not None:
                    return Born(pid)
        return subprocess.Popen(command, cwd=cwd, env=env, stdout=stdout, **rest)

    def _fixed_of(self, environment: Mapping[str, str]) -> dict[str, str]:
        return {k: v for k, v in environment.items() if k.startswith(self._fixed)}


def _group() -> str:
    """In which control groups this process is, and so what it starts."""
    try:
        return Path("/proc/self/cgroup").read_text()
    except OSError:
        return ""  # there are none


class Born:
    """What the daemon uses of :class:`subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        """As of Popen."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class _Cradle:
    """A process that forks, from the daemon's side. It ends with the daemon."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self.environment, self._is_ready = environment, False
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(other.fileno()), module.rpartition(".")[2]],
                cwd="/",
                env={**environment, _ROOM: "-" * _ROOM_BYTES},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                start_new_session=True,
            )
        atexit.register(self.close)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def fork(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], output: int
    ) -> int | None:
        """The pid of what is a child of ours now, or None: it can't be forked."""
        asked = {"command": command, "folder": str(folder), "environment": dict(environment)}
        data = json.dumps(asked).encode()
        if len(data) >= _MESSAGE_BYTES:
            return None
        try:
            if not self._is_ready:
                self._is_ready = self._socket.recv(_MESSAGE_BYTES) == _READY
            with _taking_orphans():
                socket.send_fds(self._socket, [data], [output])
                answer = self._socket.recv(_MESSAGE_BYTES)
        except OSError:
            return None
        return cast("int | None", json.loads(answer)) if answer else None

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@contextlib.contextmanager
def _taking_orphans() -> Iterator[None]:
    """What loses its parent meanwhile, of those that descend from us, is our own child then."""
    prctl = ctypes.CDLL(None).prctl
    assert prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


# --- the cradle's own process -------------------------------------------------------------------


def _serve(asked: socket.socket) -> Callable[[], object]:
    """Until the daemon ends. Each child returns, too: with what it is to run."""
    loaded = {name.partition(".")[0] for name in sys.modules}
    with _ending_with_the_daemon():
        asked.send(_READY)
    while True:
        data, files, _, _ = socket.recv_fds(asked, _MESSAGE_BYTES, 1)
        # What was asked for by a daemon that is gone would be nobody's child.
        if not data or _is_hung_up(asked):
            os._exit(0)
        message = json.loads(data)
        pid = None
        if _finds_the_same(Path(message["folder"]), loaded):
            pid, run = _fork(message, files[0])
            if run is not None:
                asked.close()
                return run
        for file in files:
            os.close(file)
        with _ending_with_the_daemon():
            asked.send(json.dumps(pid).encode())


@contextlib.contextmanager
def _ending_with_the_daemon() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        os._exit(0)


def _is_hung_up(asked: socket.socket) -> bool:
    poll = select.poll()
    poll.register(asked, 0)  # that the other end is closed is told whatever is asked for
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def _finds_the_same(folder: Path, loaded: set[str]) -> bool:
    """Whether what is loaded would be found elsewhere than in its folder, which comes first."""
    try:
        names = os.listdir(folder)
    except OSError:
        return False  # Popen says what is wrong with it
    modules = {name.partition(".")[0] for name in names if name.endswith(_OF_MODULES)}
    return loaded.isdisjoint(modules.union(names))


def _fork(
    message: Mapping[str, Any], output: int
) -> tuple[int | None, Callable[[], object] | None]:
    """Its pid, or in itself what it runs. Its parent ends at once, so that it is the daemon's."""
    hears, says = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            if os.fork():
                os._exit(0)
            run = _born(message, output)
            os.write(says, str(os.getpid()).encode())
        except BaseException:
            os._exit(127)
        os.close(hears)
        os.close(says)
        return None, run
    os.close(says)
    os.waitpid(parent, 0)
    with open(hears, "rb") as pipe:
        said = pipe.read()
    return int(said) if said else None, None


def _born(message: Mapping[str, Any], output: int) -> Callable[[], object]:
    """Become what was asked for."""
    os.setsid()
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    os.environ.clear()
    os.environ.update(message["environment"])
    command: list[str] = message["command"]
    _show(command, message["environment"])
    time.tzset()
    tempfile.tempdir = None
    os.chdir(message["folder"])
    sys.path[0] = os.getcwd()  # as -m has it
    sys.orig_argv = command
    return lambda: runpy.run_module(command[-1], run_name="__main__", alter_sys=True)


def _show(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Have these read in /proc, where they are read from our memory."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    at, at_end, variables, variables_end = (int(field) for field in fields[45:49])
    for start, end, words in (
        (at, at_end, command),
        (variables, variables_end, [f"{k}={v}" for k, v in environment.items()]),
    ):
        text = b"".join(os.fsencode(word) + b"\0" for word in words)
        assert len(text) <= end - start, "no room"
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def _main() -> None:
    asked = socket.socket(fileno=int(sys.argv[1]))
    asked.set_inheritable(False)
    del sys.path[0]  # this file's folder
    os.environ.pop(_ROOM)
    module = f"elasticd.{sys.argv[2]}"
    if module == "elasticd.reducer":
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as it does itself before it loads
    for name in LOADED[module]:
        importlib.import_module(name)
    sys.modules.pop(f"{module}.__main__", None)
    sys.path.insert(0, "")
    gc.collect()
    gc.freeze()
    _serve(asked)()


if __name__ == "__main__":
    _main()
