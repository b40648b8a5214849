"""One child that runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from elasticd.core.words import effects as e
from elasticd.core.words.records import World
from elasticd.core.words.reducers import ReducerWarm
from elasticd.errors import OperationError
from elasticd.shell.children.awake import Assertion, Awake
from elasticd.shell.children.files import now_at
from elasticd.shell.children.otherpython import unbegun
from elasticd.shell.children.ports import ClaimedPort, claim_port
from elasticd.shell.children.server import Child
from elasticd.shell.children.units import RunningUnit
from elasticd.supervision import machine
from elasticd.supervision.logs import RotatedLog
from elasticd.supervision.unit import Unit
from elasticd.types import JobId

_STOP_SECONDS = 3.0


@dataclass(slots=True)
class RunningChild:
    """A trainer or reducer of this node, under the number that the control plane gave it.

    Attributes:
        ring: of a reducer, the world whose ring it was told to form, and its rank there.
    """

    id: e.ChildId
    child: Child
    job: JobId | None
    log: RotatedLog
    unit: RunningUnit
    ring: tuple[World, int] | None = None
    claimed: ClaimedPort | None = None
    """Of a reducer: where it will listen."""
    assertion: Assertion | None = None
    """Of a trainer: keeps the machine awake."""
    python: str = ""
    """Of a trainer that this daemon has started with the job's own interpreter: that."""

    @property
    def port(self) -> int:
        """0: none was chosen for it."""
        return 0 if self.claimed is None else self.claimed.port

    @contextlib.contextmanager
    def served(self) -> Iterator[None]:
        """An OSError of ours, about this child, costs the child and not the daemon: all that a
        child does can be done again."""
        try:
            yield
        except OSError as error:
            self.child.fail(str(error))

    def last_words(self, lines: int) -> str:
        """The end of what it printed, and why we have killed it, if we had to.

        Read in the loop: what was printed just now is in memory, and whoever hears of an end
        decides by it, before anything else comes.
        """
        try:
            tail = RotatedLog(now_at(self.log.path)).tail(lines)
        except OSError as error:
            tail = f"elasticd: its log can't be read: {error}"
        return "\n".join(part for part in (tail.rstrip("\n"), self.child.failed) if part)

    def told_end(self, status: int | None, words: str) -> tuple[int | None, str]:
        """What is told of its end, of which ``status`` and ``words`` are known."""
        if not self.python or self.child.greeted or self.child.failed or not status or status < 0:
            return status, words
        return unbegun(self.python, status, words)

    def claim_port(self, hosts: Sequence[str]) -> str:
        """Choose where it will listen, and nowhere else. Why it can't, as of a machine that has no
        address any more, or nothing."""
        self.close()
        try:
            self.claimed = claim_port(*hosts)
        except OperationError as error:
            return str(error)
        return ""

    def warm(self, host: str, word: ReducerWarm) -> e.ReducerReady:
        """What its daemon is told of a reducer that has a port."""
        at = f"{host}:{self.port}"
        return e.ReducerReady(self.id, at, word.proves, word.walks, word.chains)

    def stay_awake(self, awake: Awake) -> None:
        """No machine is to fall asleep under a trainer, be it a spare that may take over."""
        if self.child.role == "trainer":
            self.assertion = awake.hold(self.child.pid)

    def close(self) -> None:
        """It has ended, or we have."""
        if self.assertion is not None:
            self.assertion.release()
        self.assertion = None
        if self.claimed is not None:
            self.claimed.close()
        self.claimed = None


def running(
    number: e.ChildId, child: Child, job: JobId | None, start_seconds: float, python: str = ""
) -> RunningChild:
    """A child that has just been started, or adopted. It is killed unless it is up within
    ``start_seconds``, 0: whenever. ``python``: the job's own interpreter, if that was started."""
    unit = Unit(
        name=f"{child.role} {child.pid}",
        command=(child.role,),
        restart="no",
        start_timeout_seconds=start_seconds,
        stop_timeout_seconds=_STOP_SECONDS,
    )
    held = RunningUnit(unit, child.kill)
    held.tell(machine.UnitStarted())
    log = RotatedLog(now_at(child.log))
    return RunningChild(number, child, job, log, held, python=python)
