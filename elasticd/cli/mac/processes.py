"""Probes of processes: descriptors that pass, the dead that are noticed, a ring that comes up."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import psutil

from elasticd.errors import ProtocolError
from elasticd.ipc.frames import BATCH_FDS, FrameSocket
from elasticd.ipc.listening import is_listening
from elasticd.ipc.memoryfile import MEMORY_BYTES, create_memory
from elasticd.preflight.finding import ProbeFinding, failed, passed, warned
from elasticd.supervision.exits import wait_without_reaping, watch_exit

PASSES = 10_000
_NOTICE_SECONDS = 5.0
_SLOW_NOTICE_SECONDS = 0.5
_RING_SECONDS = 20.0
_LOOK_SECONDS = 0.005
ROUNDS = 3
_SWEEP_SECONDS = 0.2
"""After the kernel looks for descriptors that are on their way to nobody."""
_UNREAD_BYTES = 8000
"""Of the 8192 that macOS holds for a Unix socket's reader: the rest is less than
:data:`~elasticd.ipc.frames.BATCH_FDS` descriptors take."""
RANK = (
    sys.executable,
    "-P",
    "-c",
    "import json, sys, mlx.core as mx; from elasticd.reducer.ring import join_ring;"
    "mx.set_default_device(mx.cpu);"
    "group = join_ring(int(sys.argv[1]), json.loads(sys.argv[2]));"
    "print(int(mx.distributed.all_sum(mx.array([group.rank() + 1]), group=group).item()))",
)
"""One rank of a ring of two; the sum over both is 3."""


def outlives_its_way(kept: bool) -> bool:
    """Whether a socket that was passed on can be used, others having been closed meanwhile.
    ``kept``: somebody has it open until it is taken."""
    near, far = socket.socketpair()
    mine, given = socket.socketpair()
    with near, far, mine, given:
        socket.send_fds(near, [b"x"], [given.fileno()])
        if not kept:
            given.close()
        for other in socket.socketpair():
            other.close()
        time.sleep(_SWEEP_SECONDS)
        _, (fd, *_), _, _ = socket.recv_fds(far, 1, 1)
        with socket.socket(fileno=fd) as taken, contextlib.suppress(OSError):
            mine.send(b"y")
            taken.settimeout(_SWEEP_SECONDS)
            return taken.recv(1) == b"y"
    return False


def passes_behind_unread(make: Callable[[], tuple[socket.socket, socket.socket]]) -> bool:
    """Whether descriptors come through a socket that has room for no more of them until its other
    end, which waits a moment, reads. ``make`` makes both ends."""
    near, far = make()
    sender, receiver = FrameSocket(near), FrameSocket(far)
    with contextlib.closing(sender), contextlib.closing(receiver), ThreadPoolExecutor(1) as pool:
        far.settimeout(_NOTICE_SECONDS)
        sender.send({"unread": bytes(_UNREAD_BYTES)})
        sent = pool.submit(sender.send, {}, [near.fileno()] * BATCH_FDS)
        try:
            wait([sent], _SWEEP_SECONDS)
            receiver.receive()
            got = receiver.receive()
            sent.result()
        except (OSError, ProtocolError):
            return False
        finally:
            receiver.close()  # so the sender's thread ends
        fds = got[1] if got is not None else []
        for fd in fds:
            os.close(fd)
        return len(fds) == BATCH_FDS


def descriptors(
    folder: Path,
    create: Callable[[], int] = create_memory,
    times: int = PASSES,
    outlives: Callable[[bool], bool] = outlives_its_way,
    make: Callable[[], tuple[socket.socket, socket.socket]] = socket.socketpair,
) -> ProbeFinding:
    """Shared memory by a descriptor through a socket, as trainers and reducers have theirs."""
    cure = "Send this result: without shared memory no rank can be on this machine"
    begun, before = time.monotonic(), psutil.Process().num_fds()
    near, far = socket.socketpair()
    with near, far:
        for turn in range(times):
            try:
                seen = _passed_on(near, far, create, turn)
            except (OSError, ValueError) as error:
                return failed(f"pass {turn + 1} of {times}: {error}", cure)
            if not seen:
                return failed(f"pass {turn + 1} of {times}: what was written isn't there", cure)
    left = psutil.Process().num_fds() - before
    if left > 0:
        return failed(f"{left} descriptors are left open after {times} passes", cure)
    each = (time.monotonic() - begun) / times
    if not outlives(True):
        return failed("a socket that was passed on, and kept until it was taken, is dead", cure)
    if not passes_behind_unread(make):
        return failed(f"{BATCH_FDS} descriptors behind {_UNREAD_BYTES} bytes don't come", cure)
    alone = "arrives, too" if outlives(False) else "is shut down, as is expected"
    return passed(f"{times:,} passes, {each * 1e6:.0f} µs each; a socket nobody keeps {alone}")


def _passed_on(
    near: socket.socket, far: socket.socket, create: Callable[[], int], turn: int
) -> bool:
    """Whether the other end of the socket reads what was written on this one."""
    fd = create()
    try:
        socket.send_fds(near, [b"x"], [fd])
        _, got, _, _ = socket.recv_fds(far, 1, 1)
        try:
            mark = (turn + 1).to_bytes(8, "little")  # new memory is zero
            with mmap.mmap(fd, MEMORY_BYTES) as mine, mmap.mmap(got[0], MEMORY_BYTES) as theirs:
                mine[-8:] = mark
                return theirs[-8:] == mark
        finally:
            for each in got:
                os.close(each)
    finally:
        os.close(fd)


def zombies(folder: Path, kill: Callable[[int, int], None] = os.killpg) -> ProbeFinding:
    """Whether what a dead, unreaped process has started can be killed by its group."""
    leader = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 600 & exit 0"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert leader.stdout is not None
    try:
        wait_without_reaping(leader.pid)
        try:
            asked = f"getpgid of it says {os.getpgid(leader.pid) == leader.pid}"
        except OSError as error:
            asked = f"getpgid of it fails ({error.strerror})"
        try:
            kill(leader.pid, signal.SIGKILL)
        except OSError as error:
            asked += f", killpg fails ({error.strerror})"
        # The pipe ends with the last of those who have it.
        ended, _, _ = select.select([leader.stdout], [], [], _NOTICE_SECONDS)
    finally:
        with contextlib.suppress(OSError):
            os.killpg(leader.pid, signal.SIGKILL)
        leader.wait()
        leader.stdout.close()
    if not ended:
        return failed(
            f"a zombie's group lives on; {asked}",
            "After a crash look for leftovers with 'ps -axo pid,pgid,command', and end them by"
            " hand",
        )
    return passed(f"a zombie's group is killed; {asked}")


def exits(
    folder: Path, watch: Callable[[int, Callable[[], None]], Callable[[], None]] = watch_exit
) -> ProbeFinding:
    """How soon an exit is noticed: of a process that runs yet, and of one that has ended."""
    cure = "Send this result: without notices of exits recoveries here would take seconds longer"
    slowest = 0.0
    for before in (False, True):
        process = subprocess.Popen(["/bin/sleep", "600"])
        try:
            if before:
                process.kill()
                wait_without_reaping(process.pid)
            seconds = asyncio.run(_noticed(process, watch))
        finally:
            process.kill()
            process.wait()
        when = "before it was watched" if before else "while it was watched"
        if seconds is None:
            return failed(f"the end of a process that ended {when} goes unnoticed", cure)
        slowest = max(slowest, seconds)
    value = f"noticed within {slowest * 1000:.1f} ms"
    return warned(value, cure) if slowest > _SLOW_NOTICE_SECONDS else passed(value)


async def _noticed(
    process: subprocess.Popen[bytes],
    watch: Callable[[int, Callable[[], None]], Callable[[], None]],
) -> float | None:
    """Kill it; the seconds until the notice; None: none came."""
    seen = asyncio.Event()
    end, begun = watch(process.pid, seen.set), time.monotonic()
    process.kill()
    try:
        await asyncio.wait_for(seen.wait(), _NOTICE_SECONDS)
    except TimeoutError:
        return None
    finally:
        end()
    return time.monotonic() - begun


def ring(
    folder: Path,
    rank: Sequence[str] = RANK,
    rounds: int = ROUNDS,
    seconds: float = _RING_SECONDS,
) -> ProbeFinding:
    """MLX's ring in elasticd's order: rank 0 listens and is stopped while rank 1 comes up."""
    times = []
    for _ in range(rounds):
        with contextlib.ExitStack() as ranks:
            try:
                times.append(_comes_up(ranks, rank, seconds))
            except _NoRing as error:
                return failed(
                    str(error),
                    "See whether a firewall holds connections to 127.0.0.1 up; else send this"
                    " result",
                )
    return passed(f"{rounds} rings of two came up, the slowest in {max(times):.2f} s")


class _NoRing(Exception):
    """Why it did not come up."""


def _comes_up(ranks: contextlib.ExitStack, rank: Sequence[str], seconds: float) -> float:
    ports = list(_free_ports(2))
    hosts = "[" + ", ".join(f'"127.0.0.1:{port}"' for port in ports) + "]"
    deadline = time.monotonic() + seconds
    first = ranks.enter_context(_rank([*rank, "0", hosts]))
    _await_listening(first, ports[0], "rank 0", deadline)
    begun = time.monotonic()
    first.send_signal(signal.SIGSTOP)
    second = ranks.enter_context(_rank([*rank, "1", hosts]))
    _await_listening(second, ports[1], "rank 1, beside a rank 0 that is stopped,", deadline)
    first.send_signal(signal.SIGCONT)
    for number, process in enumerate((first, second)):
        try:
            out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise _NoRing(f"rank {number} hangs once rank 0 goes on") from None
        if out.strip() != b"3":
            last = err.decode("utf-8", "replace").strip().splitlines()[-1:] or ["nothing"]
            raise _NoRing(f"rank {number} got no sum: it says {last[0]}")
    return time.monotonic() - begun


@contextlib.contextmanager
def _rank(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _await_listening(
    process: subprocess.Popen[bytes], port: int, who: str, deadline: float
) -> None:
    while not is_listening(process.pid, port):
        if process.poll() is not None:
            raise _NoRing(f"{who} ended with status {process.returncode}")
        if time.monotonic() > deadline:
            raise _NoRing(f"{who} doesn't listen")
        time.sleep(_LOOK_SECONDS)


def _free_ports(count: int) -> Iterator[int]:
    with contextlib.ExitStack() as held:
        for _ in range(count):
            one = held.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            yield one.getsockname()[1]
