"""What every child of the daemon has: its connection to the daemon, and a kernel dead-man.

A child may hang with the interpreter's lock held, so the dead-man is a kernel timer with the
default action, which needs no Python to end the process. It is armed again at each frame from the
daemon.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elasticd.errors import ProtocolError
from elasticd.ipc.frames import FrameSocket

CHILD_VARIABLE = "ELASTICD_CHILD"
DUMP_SIGNAL = signal.SIGUSR2
"""Makes a trainer print the stacks of its threads to its log."""


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """What the daemon tells a child through its environment; ``extra`` holds the keys of the
    child's role.
    """

    socket: str
    nonce: str
    role: str
    grace_seconds: float
    extra: Mapping[str, Any]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> ChildSettings:
        """Read :data:`CHILD_VARIABLE`.

        Raises:
            ProtocolError: it is missing, no JSON object, or lacks a key.
        """
        try:
            extra = dict(json.loads(environment[CHILD_VARIABLE]))
            return cls(
                socket=str(extra.pop("socket")),
                nonce=str(extra.pop("nonce")),
                role=str(extra.pop("role")),
                grace_seconds=float(extra.pop("grace_seconds")),
                extra=extra,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(
                f"{CHILD_VARIABLE} is not set as a child needs it: {error!r}"
            ) from error


class DaemonLink:
    """A child's connection to its daemon. Any thread may send; one thread iterates
    :meth:`messages`.

    When the daemon has gone the child goes on: sending does nothing, iteration ends, and the
    dead-man ends the process ``grace_seconds`` after the last frame.
    """

    def __init__(self, settings: ChildSettings, connection: FrameSocket) -> None:
        self.settings = settings
        self._connection = connection

    @classmethod
    def connect(cls, settings: ChildSettings | None = None) -> DaemonLink:
        """Arm the dead-man, connect, and send ``hello``.

        Raises:
            ProtocolError: the environment is not a child's.
            OSError: the daemon does not listen.
        """
        settings = settings or ChildSettings.from_environment()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a parent may have had it ignored
        link = cls(settings, FrameSocket.connect(settings.socket))
        link._arm()
        link.send(
            {"t": "hello", "nonce": settings.nonce, "pid": os.getpid(), "role": settings.role}
        )
        return link

    def _arm(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self.settings.grace_seconds)

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> bool:
        """Send one frame, with copies of ``fds``. False, and nothing sent, if the daemon has
        gone.
        """
        try:
            self._connection.send(message, fds)
        except OSError:
            return False
        return True

    def messages(self) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Block for each message and the descriptors that came with it (the caller's to close).

        ``alive`` only arms the dead-man and is not returned. Ends when the daemon has gone.

        Raises:
            ProtocolError: the daemon sent what is no frame.
        """
        while True:
            try:
                received = self._connection.receive()
            except ConnectionError:
                return
            if received is None:
                return
            self._arm()
            if received[0].get("t") != "alive":
                yield received

    def fileno(self) -> int:
        """The socket's descriptor, for select."""
        return self._connection.fileno()

    def close(self) -> None:
        """Disarm the dead-man and close the connection."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._connection.close()
