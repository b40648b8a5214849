"""What every child of the daemon has: its connection to the daemon, and a dead-man, which is armed
again at each frame from the daemon.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from elasticd.core.words.codec import from_plain
from elasticd.core.words.processes import (
    FROM_ANY_CHILD,
    NEWEST,
    TO_ANY_CHILD,
    ChildBye,
    ChildHello,
)
from elasticd.errors import ProtocolError
from elasticd.ipc.deadman import DeadMan
from elasticd.ipc.frames import CutFrame, FrameSocket
from elasticd.types import Role

CHILD_VARIABLE = "ELASTICD_CHILD"
DUMP_SIGNAL = signal.SIGUSR2
"""Makes a trainer print the stacks of its threads to its log."""
_LOOK_SECONDS = 0.03
"""Between two looks for a daemon that has taken the place of ours."""


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """What the daemon tells a child through its environment; ``extra`` holds the keys of the
    child's role.
    """

    socket: str
    nonce: str
    role: Role
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
                role=from_plain(Role, extra.pop("role")),
                grace_seconds=float(extra.pop("grace_seconds")),
                extra=extra,
            )
        except (KeyError, TypeError, ValueError, ProtocolError) as error:
            raise ProtocolError(
                f"{CHILD_VARIABLE} is not set as a child needs it: {error!r}"
            ) from error


Resume = Callable[[Sequence[Mapping[str, Any]]], None]
"""Says hello to a daemon that was restarted, and these messages right behind it."""


class DaemonLink:
    """A child's connection to its daemon. Any thread may send; one thread iterates
    :meth:`messages`.

    When the daemon has gone the child goes on: sending does nothing, and :meth:`messages` connects
    to the daemon's successor as soon as that listens. If none comes, the dead-man ends the process
    ``grace_seconds`` after the last frame.

    Attributes:
        introduce: called by the thread of :meth:`messages` when a successor listens; it must call
            what it is given, once, with the messages by which the child introduces itself. What
            other threads send before that call is lost, what they send after it comes after.
    """

    def __init__(self, settings: ChildSettings, connection: FrameSocket) -> None:
        self.settings = settings
        self.introduce: Callable[[Resume], None] = lambda resume: resume([])
        self._connection = connection
        self._dead_man = DeadMan()
        self._arming = threading.Lock()
        """Whoever arms the dead-man, so that nobody does once the link is closed."""
        self._switching = threading.Lock()
        self._closed = threading.Event()

    @classmethod
    def connect(cls, settings: ChildSettings | None = None) -> DaemonLink:
        """Arm the dead-man, connect, and send ``hello``.

        Raises:
            ProtocolError: the environment is not a child's.
            OSError: the daemon does not listen.
        """
        settings = settings or ChildSettings.from_environment()
        link = cls(settings, FrameSocket.connect(settings.socket))
        link._arm()
        link.send(link._hello())
        return link

    def _hello(self) -> dict[str, Any]:
        own = self.settings
        return FROM_ANY_CHILD.encode(ChildHello(own.nonce, os.getpid(), own.role, NEWEST))

    def _arm(self) -> None:
        with self._arming:
            if not self._closed.is_set():
                self._dead_man.arm(self.settings.grace_seconds)

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> bool:
        """Send one frame, with copies of ``fds``. False, and nothing sent, if the daemon has
        gone.
        """
        with self._switching:
            try:
                self._connection.send(message, fds)
            except OSError:
                return False
            return True

    def messages(self) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Block for each message and the descriptors that came with it (the caller's to close).

        ``alive`` only arms the dead-man and is not returned. Ends when the link is closed.

        Raises:
            ProtocolError: the daemon sent what is no frame.
        """
        while True:
            try:
                received = self._connection.receive()
            except (OSError, CutFrame):
                received = None
            if received is None:
                if not self._find_successor():
                    return
                continue
            self._arm()
            if not TO_ANY_CHILD.knows(received[0]):
                yield received

    def _find_successor(self) -> bool:
        """Connect to the daemon that takes the place of ours; False once the link is closed."""
        while not self._closed.wait(_LOOK_SECONDS):
            with contextlib.suppress(OSError):
                connection = FrameSocket.connect_aside(self.settings.socket)
                self.introduce(partial(self._switch, connection))
                return True
        return False

    def _switch(self, connection: FrameSocket, messages: Sequence[Mapping[str, Any]]) -> None:
        with self._switching:
            old, self._connection = self._connection, connection
            old.close()
            # A daemon that dies meanwhile is met again as the end of this connection.
            with contextlib.suppress(OSError):
                for message in (self._hello(), *messages):
                    connection.send(message)
            if self._closed.is_set():
                connection.close()

    def say_goodbye(self, status: int) -> None:
        """Tell the daemon that the process is about to end with ``status``: a daemon that did not
        start it can't learn that otherwise. While there is none, this waits for its successor, as
        long as the dead-man allows.
        """
        while not self.send(FROM_ANY_CHILD.encode(ChildBye(status))):
            if self._closed.wait(_LOOK_SECONDS):
                return

    def let_go(self) -> None:
        """In a forked child, which is none of the daemon's: from now on nothing is sent, and the
        daemon hears the end of who has forked it."""
        self._connection.let_go()

    def close(self) -> None:
        """Disarm the dead-man and close the connection."""
        with self._arming:
            self._closed.set()
            self._dead_man.arm(0)
        with self._switching:
            self._connection.close()
