"""Packets that vanish on connections that are in use: the kernel drops what arrives at a socket.

A filter on the socket does it, so nothing is told to either end, no rights are needed beyond those
over the process, and nothing is left once the socket is closed. Linux only.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
from collections.abc import Iterable, Iterator

import psutil

from elasticd.ipc.foreign import Address, borrowed

End = tuple[int, Address, Address]
"""A process's end of a TCP connection: its pid, its address and the other's."""

_SO_ATTACH_FILTER = 26
_LOAD, _JUMP_IF_AT_LEAST, _RETURN = 0x20, 0x35, 0x06
_RANDOM = 0xFFFFF000 + 56
"""Where linux/filter.h keeps a random number of 32 bits."""
_MOST = 0xFFFFFFFF
_TOTAL_RETRANSMITS = struct.Struct("@100xI")
"""Of tcp_info."""


def ends(pid: int) -> list[End]:
    """All connections of a process."""
    found = psutil.Process(pid).net_connections("tcp4")
    pairs = [(c.laddr, c.raddr) for c in found if c.laddr and c.raddr]
    return [(pid, (near.ip, near.port), (far.ip, far.port)) for near, far in pairs]


def ends_towards(pid: int, other: int) -> list[End]:
    """Those with another process."""
    theirs = {(local, remote) for _, local, remote in ends(other)}
    return [end for end in ends(pid) if (end[2], end[1]) in theirs]


def drop(arriving: Iterable[End], share: float) -> None:
    """Let so many of the packets that arrive from now on be lost. Raises OperationError."""
    program = ctypes.create_string_buffer(
        b"".join(
            struct.pack("@HBBI", *instruction)
            for instruction in (
                (_LOAD, 0, 0, _RANDOM),
                (_JUMP_IF_AT_LEAST, 1, 0, min(int(share * (_MOST + 1)), _MOST)),
                (_RETURN, 0, 0, 0),
                (_RETURN, 0, 0, _MOST),
            )
        )
    )
    option = struct.pack("@HP", 4, ctypes.addressof(program))
    for copy in _copies(arriving):
        copy.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)


def sent_again(sending: Iterable[End]) -> int:
    """Packets that had to be. Raises OperationError. Linux only."""
    if sys.platform != "linux":
        return 0
    return sum(
        _TOTAL_RETRANSMITS.unpack(
            copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TOTAL_RETRANSMITS.size)
        )[0]
        for copy in _copies(sending)
    )


def _copies(of: Iterable[End]) -> Iterator[socket.socket]:
    for end in of:
        with borrowed(*end) as copy:
            if copy is not None:
                yield copy
