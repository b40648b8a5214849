"""Whether a child listens: how the bring-up of a ring sees that its ranks are ready."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Iterator

import psutil

# sock_diag(7): a dump of the sockets in one state takes microseconds, where /proc/net/tcp, which
# psutil reads, walks the kernel's whole table in some milliseconds.
_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_LISTEN = 10
_HEADER = struct.Struct("=IHHII")
_QUERY = struct.Struct("=BBBxI4s44x")
_ANSWER = struct.Struct("=BBBB48sIIIII")


def is_listening(pid: int, port: int) -> bool:
    """Whether the process ``pid``, a child of the caller, listens on the TCP port ``port`` (IPv4).

    Does not block. False for a process that has gone or may not be looked at.
    """
    if sys.platform == "linux":
        try:
            inodes = {inode for _, inode in _listening_inodes(port)}
        except OSError:  # a kernel without sock_diag
            return _is_listening_anywhere(pid, port)
        return bool(inodes) and not inodes.isdisjoint(_socket_inodes(pid))
    return _is_listening_anywhere(pid, port)


def listening_ports(pid: int) -> list[int]:
    """The TCP ports (IPv4) on which a process listens; Linux only."""
    own = set(_socket_inodes(pid))
    return [port for port, inode in _listening_inodes() if inode in own]


def _is_listening_anywhere(pid: int, port: int) -> bool:
    try:
        connections = psutil.Process(pid).net_connections(kind="tcp4")
    except psutil.Error:
        return False
    return any(
        connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
        for connection in connections
    )


def _listening_inodes(wanted: int = 0) -> Iterator[tuple[int, int]]:
    """(port, inode) of the sockets that listen on a port, 0: on any."""
    if sys.platform != "linux":
        return
    sport = struct.pack(">HH", wanted, 0)
    query = _QUERY.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 1 << _LISTEN, sport)
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
