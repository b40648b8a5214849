"""Whether a child listens, or has let somebody in.

The bring-up of a ring sees by that how far its ranks are.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Literal

import psutil

# sock_diag(7): a dump of the sockets in one state takes microseconds, where /proc/net/tcp, which
# psutil reads, walks the kernel's whole table in some milliseconds.
_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_ESTABLISHED, _FIN_WAIT1, _FIN_WAIT2, _CLOSE_WAIT, _LAST_ACK, _LISTEN, _CLOSING = (
    1, 4, 5, 8, 9, 10, 11
)  # fmt: skip
_CONNECTED = (_ESTABLISHED, _FIN_WAIT1, _FIN_WAIT2, _CLOSE_WAIT, _LAST_ACK, _CLOSING)
_HEADER = struct.Struct("=IHHII")
_QUERY = struct.Struct("=BBBxI4s44x")
_ANSWER = struct.Struct("=BBBB48sIIIII")


PortUse = Literal["none", "listens", "taken"]
"""Taken: somebody has connected, and the process has accepted that and listens no more."""


def port_use(pid: int, port: int) -> PortUse:
    """What the process ``pid``, a child of the caller, does with the TCP port ``port`` (IPv4).

    Does not block. "none" for a process that has gone or may not be looked at.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a kernel without sock_diag
            at = {inode: state for _, inode, state in _sockets((_LISTEN, *_CONNECTED), port)}
            own = {at[inode] for inode in _socket_inodes(pid) if inode in at} if at else set()
            return _use(_LISTEN in own, bool(own))
    return _use_anywhere(pid, port)


def has_tcp_sockets(pid: int) -> bool:
    """Whether the process ``pid``, a child of the caller, has a TCP socket, in whatever state: also
    one whose other end has gone, of which the kernel tells nothing else. Does not block."""
    if sys.platform == "linux":
        own = {str(inode) for inode in _socket_inodes(pid)}
        with open("/proc/net/unix", "rb") as table:
            return not own.issubset(line.split()[6].decode() for line in table)
    try:
        return bool(psutil.Process(pid).net_connections(kind="tcp"))
    except psutil.Error:
        return False


def listening_ports(pid: int) -> list[int]:
    """The TCP ports (IPv4) on which a process listens; Linux only."""
    own = set(_socket_inodes(pid))
    return [port for port, inode, _ in _sockets((_LISTEN,)) if inode in own]


def _use(listens: bool, used: bool) -> PortUse:
    return "listens" if listens else "taken" if used else "none"


def _use_anywhere(pid: int, port: int) -> PortUse:
    try:
        connections = psutil.Process(pid).net_connections(kind="tcp4")
    except psutil.Error:
        return "none"
    # One that has ended altogether has no local address on some systems: it is not seen.
    states = {each.status for each in connections if each.laddr and each.laddr.port == port}
    return _use(psutil.CONN_LISTEN in states, bool(states))


def _sockets(states: Iterable[int], wanted: int = 0) -> Iterator[tuple[int, int, int]]:
    """(port, inode, state) of the sockets in these states whose own port is that, 0: any."""
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
                    yield port, answer[-1], answer[1]
                data = data[length + -length % 4 :]


def _socket_inodes(pid: int) -> Iterator[int]:
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):  # closed meanwhile
                target = os.readlink(f"{folder}/{name}")
                if target.startswith("socket:["):
                    yield int(target[8:-1])
