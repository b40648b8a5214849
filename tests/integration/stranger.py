"""Somebody on the machine who connects to reducers while a ring comes up.

It sees, as anybody can, which TCP ports are listened on, and is faster than the true neighbour. It
looks only at processes that it is given: other clusters on this machine are none of its business.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from elasticd.ipc.listening import listening_ports

How = Literal["silent", "garbage", "leaves", "relays"]
HOWS: tuple[How, ...] = ("silent", "garbage", "leaves", "relays")
_PAUSE_SECONDS = 0.001
_RELAY_SECONDS = 6.0


@dataclass
class Stranger:
    """As a context manager: takes the next ``rings`` links that it can, each in a way drawn.

    Attributes:
        pids: whose ports it looks at.
        taken: what it has done: how, and at which port.
        passed: bytes that it has passed on, or changed, between two reducers.
    """

    pids: Callable[[], Iterable[int]]
    dice: random.Random
    rings: int
    hows: tuple[How, ...] = HOWS
    taken: list[tuple[How, int]] = field(default_factory=list)
    passed: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _held: list[socket.socket] = field(default_factory=list)

    def __enter__(self) -> Stranger:
        self._begin(self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for held in self._held:
            _hang_up(held)
        for thread in self._threads:
            thread.join(20.0)
        for held in self._held:
            held.close()

    def _begin(self, work: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _watch(self) -> None:
        seen: set[tuple[int, int]] = set()
        while not self._over.is_set() and len(self.taken) < self.rings:
            for pid in self.pids():
                for port in listening_ports(pid):
                    if (pid, port) not in seen:
                        seen.add((pid, port))
                        # Not always the first: the links to every rank are taken.
                        if self.dice.random() < 0.7:
                            self._take(port)
            self._over.wait(_PAUSE_SECONDS)

    def _take(self, port: int) -> None:
        how = self.dice.choice(self.hows)
        try:
            link = socket.create_connection(("127.0.0.1", port), 1.0)
        except OSError:
            return  # its neighbour was faster
        link.settimeout(None)
        self._held.append(link)
        self.taken.append((how, port))
        with contextlib.suppress(OSError):
            if how == "garbage":
                link.sendall(self.dice.randbytes(self.dice.choice((3, 32, 5000))))
            elif how == "leaves":
                self._over.wait(self.dice.choice((0.0, 0.02, 0.3)))
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))
                self._held.remove(link)
                link.close()
            elif how == "relays":
                self._begin(self._relay, link, port)

    def _relay(self, link: socket.socket, port: int) -> None:
        """Take the true neighbour's next try, and pass on what both say, with changes."""
        with contextlib.suppress(OSError), _bound(port, self._over) as listener:
            other, _ = listener.accept()
            other.settimeout(None)
            self._held.append(other)
            self._begin(self._pump, link, other)
            self._pump(other, link)

    def _pump(self, source: socket.socket, to: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                changed = bytearray(data)
                changed[self.dice.randrange(len(changed))] ^= 1 << self.dice.randrange(8)
                self.passed += len(changed)
                to.sendall(changed)


@contextlib.contextmanager
def _bound(port: int, over: threading.Event) -> Iterator[socket.socket]:
    """Listens at the port of a reducer that has accepted, and listens no more."""
    deadline = time.monotonic() + _RELAY_SECONDS
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        while True:
            try:
                listener.bind(("127.0.0.1", port))
                break
            except OSError:
                if time.monotonic() > deadline or over.wait(0.005):
                    raise
        listener.listen()
        listener.settimeout(_RELAY_SECONDS)
        yield listener


def _hang_up(held: socket.socket) -> None:
    with contextlib.suppress(OSError):
        held.shutdown(socket.SHUT_RDWR)
