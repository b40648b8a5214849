"""Whether a process listens, or has let somebody in.

The bring-up of a ring sees by that how far its ranks are.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import psutil

from elasticd.supervision.birth import UNSEEN

# sock_diag(7): a dump of the sockets in one state takes microseconds, where /proc/net/tcp, which
# psutil reads, walks the kernel's whole table in some milliseconds.
_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_LISTENING = {10: psutil.CONN_LISTEN}
"""States, by Linux's numbers, with psutil's names."""
_CONNECTED = {
    1: psutil.CONN_ESTABLISHED, 4: psutil.CONN_FIN_WAIT1, 5: psutil.CONN_FIN_WAIT2,
    8: psutil.CONN_CLOSE_WAIT, 9: psutil.CONN_LAST_ACK, 11: psutil.CONN_CLOSING,
}  # fmt: skip
_HEADER = struct.Struct("=IHHII")
_QUERY = struct.Struct("=BBBxI4s44x")
_ANSWER = struct.Struct("=BBBB48sIIIII")


def is_listening(pid: int, port: int, platform: str = sys.platform) -> bool:
    """Whether the process ``pid``, a child of the caller, listens on the TCP port ``port`` (IPv4).

    Does not block. False for a process that has gone or may not be looked at.
    """
    return _has_socket(pid, port, _LISTENING, platform)


def has_let_in(pid: int, port: int, platform: str = sys.platform) -> bool:
    """Whether it has accepted who has connected to that port. The kernel looks at all connections
    for that, which takes longer."""
    return _has_socket(pid, port, _CONNECTED, platform)


def has_tcp_sockets(pid: int, platform: str = sys.platform) -> bool:
    """Whether the process ``pid``, a child of the caller, has a TCP socket, in whatever state: also
    one whose other end has gone, of which the kernel tells nothing else. Does not block."""
    if platform == "linux":
        own = {str(inode) for inode in _socket_inodes(pid)}
        with contextlib.suppress(OSError), open("/proc/net/unix", "rb") as table:
            return not own.issubset(line.split()[6].decode() for line in table)
    return bool(tcp_sockets(pid, "tcp"))


def tcp_sockets(
    pid: int, kind: str = "tcp4", process: Callable[[int], psutil.Process] = psutil.Process
) -> Sequence[Any]:
    """Those of a process, as psutil tells them; none of one that has gone or may not be looked at.
    ``process`` looks at one."""
    try:
        return process(pid).net_connections(kind=kind)
    except UNSEEN:
        return []


def listening_ports(pid: int) -> list[int]:
    """The TCP ports (IPv4) on which a process listens; Linux only."""
    own = set(_socket_inodes(pid))
    return [port for port, inode in _sockets(_LISTENING) if inode in own]


def listeners(port: int, platform: str = sys.platform) -> set[int] | None:
    """The accounts whose processes listen at that TCP port, also those that we can't see; None:
    this system doesn't say."""
    if platform != "linux":
        return None
    found = set()
    try:
        for name in ("tcp", "tcp6"):
            with contextlib.suppress(FileNotFoundError), open(f"/proc/net/{name}", "rb") as table:
                for _, own, _, state, _, _, _, uid, *_ in map(bytes.split, list(table)[1:]):
                    if int(state, 16) in _LISTENING and int(own.rpartition(b":")[2], 16) == port:
                        found.add(int(uid))
    except OSError:
        return None
    return found


def listens_here(
    port: int, processes: Callable[[], Iterable[psutil.Process]] = psutil.process_iter
) -> bool:
    """Whether a process of our own account listens at that TCP port. Takes long. ``processes``:
    all there are."""
    me = os.geteuid()
    for process in processes():
        with contextlib.suppress(*UNSEEN):
            if process.uids().effective == me and any(
                each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port
                for each in process.net_connections(kind="tcp")
            ):
                return True
    return False


def _has_socket(pid: int, port: int, states: Mapping[int, str], platform: str) -> bool:
    """With that own port, in one of these states."""
    if platform == "linux":
        with contextlib.suppress(OSError):  # a kernel without sock_diag
            inodes = {inode for _, inode in _sockets(states, port)}
            return bool(inodes) and not inodes.isdisjoint(_socket_inodes(pid))
    at_port = (c for c in tcp_sockets(pid) if c.laddr and c.laddr.port == port)
    return any(connection.status in states.values() for connection in at_port)


def _sockets(states: Iterable[int], wanted: int = 0) -> Iterator[tuple[int, int]]:
    """(port, inode) of the sockets in these states whose own port is that, 0: any."""
    if sys.platform != "linux":
        return
    sport = struct.pack(">HH", wanted, 0)
    mask = sum(1 << state for state in states)
    query = _QUERY.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, mask, sport)
    header = _HEADER.pack(_HEADER.size + len(query), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(1)
        kernel.send(header + query)
        while True:
            data = kernel.recv(1 << 16)
            while data:
                length, kind, _, _, _ = _HEADER.unpack_from(data)
                if kind != _SOCK_DIAG_BY_FAMILY:
                    if kind == 2:
                        raise OSError("the kernel has no sock_diag for TCP")
                    return
                answer = _ANSWER.unpack_from(data, _HEADER.size)
                port = int.from_bytes(answer[4][:2], "big")
                if wanted in (0, port):
                    yield port, answer[-1]
                data = data[length + -length % 4 :]


def _socket_inodes(pid: int) -> Iterator[int]:
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):  # closed meanwhile
                target = os.readlink(f"{folder}/{name}")
                if target.startswith("socket:["):
                    yield int(target[8:-1])
