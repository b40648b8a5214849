"""Another process's sockets, borrowed, or shut down as a cut link would end them. Linux only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import sys
from collections.abc import Iterator

from elasticd.errors import OperationError
from elasticd.ipc.listening import tcp_sockets

_PIDFD_GETFD = 438
"""The system call's number, the same on every architecture that has it (Linux 5.6)."""

Address = tuple[str, int]


def shut_down(pid: int, local: Address, remote: Address) -> bool:
    """End the TCP connection ``local`` to ``remote`` of the process; False if it hasn't it.

    Raises:
        OperationError: this system can't, or doesn't allow it.
    """
    with borrowed(pid, local, remote) as copy:
        if copy is not None:
            with contextlib.suppress(OSError):
                copy.shutdown(socket.SHUT_RDWR)
        return copy is not None


@contextlib.contextmanager
def borrowed(pid: int, local: Address, remote: Address) -> Iterator[socket.socket | None]:
    """A copy of that TCP connection of the process, None if it hasn't it. While the copy is open,
    the process can't close the connection.

    Raises:
        OperationError: this system can't, or doesn't allow it.
    """
    if sys.platform != "linux":
        raise OperationError("only Linux lends us a socket of another process")
    number = _number(pid, local, remote)
    if number is None:
        yield None
        return
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        fd = libc.syscall(_PIDFD_GETFD, process, number, 0)
        if fd < 0:
            reason = os.strerror(ctypes.get_errno())
            raise OperationError(f"process {pid}: its socket can't be had ({reason})")
    finally:
        os.close(process)
    with socket.socket(fileno=fd) as copy:
        yield copy


def _number(pid: int, local: Address, remote: Address) -> int | None:
    for connection in tcp_sockets(pid):
        ends = connection.laddr, connection.raddr
        if all(ends) and tuple(ends[0]) == local and tuple(ends[1]) == remote:
            return int(connection.fd)
    return None
