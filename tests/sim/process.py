"""A child of a daemon, as an operating system has it: it ends, it stops, it goes on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from elasticd.core.words.effects import FromChild
from elasticd.recovery.signatures import LastMemory

if TYPE_CHECKING:
    from .cluster import Cluster
    from .host import Host

SOCKET_SECONDS = 0.0005
"""Constant, so that nothing overtakes."""
SIGKILL = -9


class Process:
    """A child of a daemon. A stopped process does what was due when it goes on."""

    def __init__(self, host: Host, child: int) -> None:
        self.host, self.child = host, child
        self.cluster: Cluster = host.cluster
        self.alive = True
        self.daemon = host.boot
        """The run of the daemon to which it is connected."""
        self.adopted = False
        """A daemon before the present one has started it."""
        self.stops = 0
        self._name = f"{host.boot} {child}"
        self.status = 0
        """How it ended."""
        self.last_words = "last words"
        self.memory: LastMemory | None = None
        """What is known of it at its end."""
        self._due: list[Callable[[], None]] = []

    def chance(self, what: str) -> random.Random:
        """The stream of chance for one thing that this process does."""
        return self.cluster.chances.of(what, self._name)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.cluster.after(seconds, lambda: self.do(action))

    def do(self, action: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self.stops:
            self._due.append(action)
        else:
            action()

    @property
    def runs(self) -> bool:
        """Whether it can answer."""
        return self.alive and not self.stops

    def stop(self) -> None:
        self.stops += 1

    def go_on(self) -> None:
        self.stops = max(0, self.stops - 1)
        if not self.stops and self.alive:
            waiting, self._due = self._due, []
            for action in waiting:
                self.do(action)

    def tell_daemon(self, word: FromChild) -> None:
        self.host.said(self, word)

    def kill(self, signal: int = SIGKILL) -> None:
        if signal == SIGKILL:
            self.die(signal)
        else:
            self.later(self.chance("ends").uniform(0.001, 0.05), lambda: self.die(signal))

    def die(self, status: int) -> None:
        if self.alive:
            self.alive = False
            self.ended(status)
            self.host.exited(self, status)

    def ended(self, status: int) -> None:
        """What the kernel does to the process's sockets."""

    def meet(self, boot: str) -> None:
        """Connect to the daemon that listens in the place of the old one, if it still does."""
        if self.host.boot == boot:
            self.daemon = boot
            self.introduce()

    def introduce(self) -> None:
        """A new daemon listens in the place of the old one."""
