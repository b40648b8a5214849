"""Unix sockets that the daemon listens on."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from elasticd.ipc.unixpath import addressed

BACKLOG = 128


def bind_unix(path: Path) -> socket.socket:
    """A non-blocking socket that listens at ``path``, mode 0600; replaces a dead daemon's.

    A path too long for a socket address is bound by its name alone, with the working folder changed
    for that moment (no change for a daemon, which works in HOME). Hold the home's lock first.

    Raises:
        OSError: the folder is missing or not writable.
    """
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        with addressed(path) as address:
            listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener
