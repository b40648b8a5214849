"""Drives the trainer's protocol in a real process: a control thread, a lock, a pipe.

The control thread answers the daemon at once, whatever the training thread does. Both call the
protocol (:mod:`elasticd.train.protocol.trainer`), which decides; here its effects are performed,
under one lock, and what it says is sent behind the lock. A training thread that waits for its
reducer is woken through a pipe, any other by the lock's condition.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, assert_never

from elasticd.core.words import trainers as w
from elasticd.core.words.processes import Alive
from elasticd.errors import ProtocolError
from elasticd.ipc.child import DaemonLink, Resume
from elasticd.settings.job import JobSpec
from elasticd.train import threads
from elasticd.train.link.background import Background
from elasticd.train.link.outbox import Outbox
from elasticd.train.link.reducing import ReducerPath
from elasticd.train.protocol import effects as e
from elasticd.train.protocol.trainer import TrainerProtocol
from elasticd.train.states.state import Snapshot
from elasticd.train.states.updates import Update
from elasticd.train.steps.named import NamedValues
from elasticd.train.steps.progress import Reporter, WorkReport
from elasticd.train.steps.relief import trim
from elasticd.types import WorkPhase

Protocol = TrainerProtocol[Snapshot, Update]


class ProtocolDriver:
    """What the control thread and the training thread share."""

    def __init__(self, link: DaemonLink, spec: JobSpec) -> None:
        self._link, self._outbox = link, Outbox(link)
        link.introduce = self._introduce
        self._protocol: Protocol = TrainerProtocol()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._reporter = Reporter(self._lock, self.send_progress)
        self.report = WorkReport(named=NamedValues(spec.checkpoint.keep_best))
        self.reducer = ReducerPath()
        self.background = Background(spec, self.say, self._outbox.send_file, self.note)
        self.strain_bytes = 0
        """What the next grain is to allocate besides."""

    def start(self) -> None:
        """Begin to answer the daemon."""
        threads.start("control", self._listen)

    def start_reports(self) -> None:
        """Begin to tell the daemon of progress."""
        self._reporter.start()

    @contextmanager
    def turn(self) -> Iterator[Protocol]:
        """Call the protocol, alone, and do what that leads to. Who has nothing to say never waits
        for a daemon that takes nothing."""
        effects: list[e.Effect] = []
        try:
            with self._changed:
                try:
                    yield self._protocol
                finally:
                    effects = self._protocol.effects()
                    for effect in effects:
                        self._perform(effect)
                    self._changed.notify_all()
        finally:
            if any(isinstance(effect, e.Say) for effect in effects):
                self._outbox.flush()

    def _perform(self, effect: e.Effect) -> None:
        """The caller holds the lock."""
        match effect:
            case e.Say(word):
                self._outbox.put(word)
            case e.LeaveWorld():
                self.report.leave_world()
                self.background.writer.interrupt()
                self.reducer.wake()
            case e.Drop(fds):
                for fd in fds:
                    os.close(fd)
            case e.Export(serial, given):
                self.background.export(serial, given)
            case e.TellProgress():
                self._reporter.touch(urgent=True)
            case _:
                assert_never(effect)

    def wait(self, ready: Callable[[], bool]) -> None:
        """Within a turn: let others have theirs until ``ready``."""
        self._changed.wait_for(ready)

    def say(self, word: w.FromTrainer) -> None:
        """Say what nothing in the protocol depends on."""
        with self.turn() as protocol:
            protocol.say(word)

    # The control thread.

    def _listen(self) -> None:
        for message, fds in self._link.messages():
            self.handle(message, fds)

    def _introduce(self, resume: Resume) -> None:
        """Our daemon was restarted."""
        with self._outbox.restarting():
            with self._lock:
                words = self._protocol.introduce(self.report.figures())
                self._outbox.clear()
            self._outbox.begin_again(words, resume)

    def handle(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        """Take in a frame of the daemon's.

        Raises:
            ProtocolError: it can't be read, or came with other descriptors than it should.
        """
        word = w.TO_TRAINER.decode(message)
        match word:
            case w.GiveWorld(size=size):
                if len(fds) != (0 if size == 1 else 2):
                    raise ProtocolError(f"{len(fds)} descriptors came with a world of {size}")
            case w.LoadState(digests=digests):
                if len(digests) not in (0, len(fds)):
                    raise ProtocolError(f"{len(digests)} digests came with {len(fds)} files")
            case w.TrimMemory():
                trim()
            case w.StrainMemory(size):
                self.strain_bytes = size
            case (
                Alive() | w.RunScript() | w.FreezeTrainer() | w.SetInterval() | w.ExportState()
                | w.LendState() | w.TakeState() | w.TellVerdict() | w.TellProven() | w.HaltAt()
                | w.TellResult() | w.TellAgreed() | w.ReleaseTrainer()
            ):  # fmt: skip
                pass
            case _:
                assert_never(word)
        with self.turn() as protocol:
            protocol.hear(word, tuple(fds))

    # What is shown.

    def timed(self, grain_seconds: float, update_seconds: float) -> None:
        with self._lock:
            self.report.grain_seconds = grain_seconds
            self.report.update_seconds = update_seconds

    def phase(self, name: WorkPhase) -> None:
        with self._lock:
            self.set_phase(name)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For others: who does that is not late itself."""
        before = self.report.phase
        self.phase("idle")
        try:
            yield
        finally:
            self.phase(before)

    @contextmanager
    def storing(self) -> Iterator[None]:
        """Meanwhile training stands still for a checkpoint."""
        with self._lock:
            during = self.report.breakdown.storing()
            during.__enter__()
        try:
            yield
        finally:
            with self._lock:
                during.__exit__(None, None, None)

    def set_phase(self, name: WorkPhase) -> None:
        """The caller holds the lock."""
        if self.report.phase != name:
            self.report.phase = name
            self.report.breakdown.phase(name)
            self._reporter.touch()

    def note(self, values: Mapping[str, float | str]) -> None:
        with self._lock:
            self.report.note(values)
            self._reporter.touch()

    def show(self, step: int, values: Mapping[str, float]) -> None:
        with self._lock:
            self.report.named.take(step, values)
            self._reporter.touch()

    def send_progress(self) -> None:
        with self.turn() as protocol:
            progress = protocol.progress(self.report.figures())
            if progress is not None:
                protocol.say(progress)
