"""Carries a trainer's words to its daemon, in the order in which they were decided.

They are put here under the protocol's lock and sent outside of it: a daemon that stands still must
not keep the training thread from its work.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from elasticd.core.words.limits import bounded
from elasticd.core.words.trainers import FROM_TRAINER, FromTrainer
from elasticd.ipc.child import Resume


class DaemonWire(Protocol):
    """What carries frames: a DaemonLink."""

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> bool: ...


class Outbox:
    """Each thread that puts a word flushes soon, so no more wait than there are threads."""

    def __init__(self, link: DaemonWire) -> None:
        self._link = link
        self._sending = threading.Lock()
        self._words: deque[FromTrainer] = deque()

    def put(self, word: FromTrainer) -> None:
        """The caller holds the protocol's lock."""
        self._words.append(bounded(word))

    def flush(self) -> None:
        """Send what is here; nothing is sent if the daemon has gone. The caller holds no lock."""
        while True:
            with self._sending:  # who finds nothing has waited for what another thread is sending
                if not self._words:
                    return
                self._link.send(FROM_TRAINER.encode(self._words.popleft()))

    def send_file(self, word: FromTrainer, fd: int) -> None:
        """Send a word with a copy of a descriptor."""
        with self._sending:
            self._link.send(FROM_TRAINER.encode(word), [fd])

    @contextmanager
    def restarting(self) -> Iterator[None]:
        """Nothing is sent meanwhile, since the daemon has yet to be told who we are."""
        with self._sending:
            yield

    def begin_again(self, words: Sequence[FromTrainer], resume: Resume) -> None:
        """These come first. While :meth:`restarting`."""
        resume([FROM_TRAINER.encode(word) for word in words])

    def clear(self) -> None:
        """A restarted daemon is told all that matters anyway. The caller holds the protocol's
        lock."""
        self._words.clear()
