"""Children that are being started, which takes as long as the disk does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import structlog

from elasticd.core.words import effects as e
from elasticd.core.words.processes import CANNOT_BEGIN, OURS
from elasticd.settings.rules import one_line
from elasticd.shell.children.launch import Launch, new_nonce
from elasticd.shell.children.running import RunningChild, running
from elasticd.shell.children.server import Child, ChildServer
from elasticd.types import JobId

_NO_PROCESS = 127
"""The status of a reducer that does not start."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Births:
    """``enlist`` is told who runs, before anybody else is; ``kill`` kills one of those;
    ``not_born`` is told the nonce of one that doesn't start."""

    server: ChildServer
    post: Callable[[e.Event], None]
    enlist: Callable[[RunningChild], None]
    kill: Callable[[e.KillChild], None]
    not_born: Callable[[str], None]
    _under_way: dict[e.ChildId, JobId | None] = field(default_factory=dict)
    _unwanted: dict[e.ChildId, e.KillChild] = field(default_factory=dict)

    def begin(
        self,
        number: e.ChildId,
        launch: Callable[[str], Launch],
        job: JobId | None,
        start_seconds: float,
        python: str = "",
    ) -> None:
        """``launch`` is called beside the loop, with the nonce. ``start_seconds`` and ``python``:
        as :func:`running` has them."""
        self._under_way[number] = job
        nonce = new_nonce()
        self.server.spawn(
            partial(launch, nonce),
            partial(self._born, number, start_seconds, python),
            partial(self._failed, number, nonce),
        )

    def of(self, job: JobId) -> bool:
        """Whether one is being started for that job."""
        return job in self._under_way.values()

    def call_off(self, effect: e.KillChild) -> None:
        """One that is being started is killed as soon as it runs."""
        if effect.child in self._under_way:
            self._unwanted[effect.child] = effect

    def _born(self, number: e.ChildId, start_seconds: float, python: str, child: Child) -> None:
        job = self._under_way.pop(number)
        self.enlist(running(number, child, job, start_seconds, python))
        self.post(e.ChildStarted(number, child.pid))
        if (unwanted := self._unwanted.pop(number, None)) is not None:
            self.kill(unwanted)

    def _failed(self, number: e.ChildId, nonce: str, why: str) -> None:
        job = self._under_way.pop(number)
        self.not_born(nonce)
        self._unwanted.pop(number, None)
        log.error("child does not start", reason=why)
        if job is None:
            self.post(e.ChildExited(number, _NO_PROCESS, why))
        else:  # its script has not ended: it never began
            self.post(e.ChildExited(number, CANNOT_BEGIN, f"{OURS}{one_line(why)}"))
