"""Accounts of this machine: who is at the other end of a Unix socket, and what they are called."""

from __future__ import annotations

import pwd
import socket
import struct
import sys
from collections.abc import Callable

from elasticd.settings.rules import one_line
from elasticd.types import MOST_ACCOUNT_LETTERS

_SO_PEERCRED: int = getattr(socket, "SO_PEERCRED", 0)
"""Not the same number on all machines; macOS has none."""
_UCRED = struct.Struct("3i")
"""Linux, unix(7): pid, uid and gid of who connected."""
_XUCRED = struct.Struct("2I h 2x 16I")
"""XNU, sys/ucred.h: a version, the uid, then its groups."""
_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1


def peer_uid(connection: socket.socket, platform: str = sys.platform) -> int | None:
    """Of the process that connected, as the kernel says; None: this one doesn't."""
    try:
        if platform == "linux":
            data = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERCRED, _UCRED.size)
            return int(_UCRED.unpack(data)[1])
        if platform == "darwin":
            data = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size)
            version, uid = struct.unpack_from("2I", data)
            return int(uid) if version == 0 else None
    except (OSError, struct.error):
        pass
    return None


def account_of(uid: int | None, look_up: Callable[[int], pwd.struct_passwd] = pwd.getpwuid) -> str:
    """Its name, else its number; empty: nothing is known. May ask a directory server, so call it
    in a thread."""
    if uid is None:
        return ""
    try:
        name = look_up(uid).pw_name
    except (KeyError, OSError):
        name = str(uid)
    return one_line(name)[:MOST_ACCOUNT_LETTERS]
