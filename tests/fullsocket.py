"""A Unix socket that is full of what its other end has not read, as macOS has them."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any


class FullSocket(socket.socket):
    """It refuses descriptors so many times while the other end is there."""

    refusals = 0

    def sendmsg(self, *args: Any, **kwargs: Any) -> int:
        if self.refusals:
            self.refusals -= 1
            self.send(b"")  # the kernel says first that the other end has gone
            raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
        return super().sendmsg(*args, **kwargs)


def full_pair(refusals: int) -> tuple[FullSocket, socket.socket]:
    """The first one refuses."""
    near, far = socket.socketpair()
    full = FullSocket(fileno=near.detach())
    full.refusals = refusals
    return full, far
