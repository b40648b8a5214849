"""What runs a job on a node, as the member and the node see it: a port.

A kind of job has one implementation: an elastic trainer with its reducer (elastic.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from elasticd.core.taking_part.adoption import AdoptedReducer, AdoptedTrainer
from elasticd.core.words import effects as e
from elasticd.core.words.engines import EngineEvent
from elasticd.core.words.records import JobRecord, TrainerStatus
from elasticd.core.words.worlds import Counted, Failing, Form, Freeze, Returned, ToPart
from elasticd.types import Tag


class Part(Protocol):
    """One job's processes on this node, whether they are in a world or wait for one."""

    fatal: str
    """A failure of the script after its last step: the job is over."""
    failing: Failing | None
    """Why it would be in vain to start anything here again."""

    # --- what it is like --------------------------------------------------------------------------

    @property
    def trains(self) -> bool:
        """Whether it is in a world now."""

    @property
    def formed(self) -> bool:
        """Whether the leader has said that all members of that world are ready."""

    @property
    def ready(self) -> bool:
        """Whether it could take the next step in that world."""

    @property
    def hopeless(self) -> bool:
        """Nothing comes up here, however often it is tried."""

    @property
    def why_none(self) -> str:
        """Why nothing is started for a while."""

    @property
    def is_asked(self) -> bool:
        """The leader has asked what we hold, and was not answered yet."""

    @property
    def wants_reducer(self) -> bool:
        """Whether a world may have to be formed soon."""

    def status(self) -> TrainerStatus | None: ...

    def reducer(self) -> int | None:
        """The process that does its collectives."""

    def owns(self, child: e.ChildId) -> bool: ...

    # --- what it is to do -------------------------------------------------------------------------

    def run(self, record: JobRecord) -> None:
        """Have what the job needs running."""

    def adopt(
        self, trainers: Sequence[AdoptedTrainer], reducers: Sequence[AdoptedReducer]
    ) -> set[e.ChildId]:
        """Go on with what a daemon before this one has started; returns what is kept of it."""

    def stand_down(self, why: str) -> bool:
        """No job is to run here: start nothing more. True when nothing takes part any more."""

    def discharge(self, why: str) -> None:
        """The world runs without us: end what still runs."""

    def renew(self, why: str) -> None:
        """Forget what has failed here, and what was begun before that and is in no world."""

    def end(self, why: str) -> None:
        """The job has ended, or rests."""

    def new_view(self) -> None:
        """What the last leader asked is void."""

    def calls(self) -> list[Returned | Counted]:
        """What was told of calls of ``run.on_main`` in the present world."""

    def suspend(self, why: str) -> None:
        """Leave the world at once, before any leader says so."""

    def on_freeze(self, freeze: Freeze) -> None: ...

    def answer(self) -> None:
        """Answer a freeze, if we can now."""

    def on_form(self, form: Form) -> None: ...

    def on_order(self, order: ToPart) -> None:
        """The leader says something else about the world."""

    # --- what happens to it -----------------------------------------------------------------------

    def on_child(self, event: e.OfChild) -> None:
        """One of its processes started, spoke, stands still or ended."""

    def on_engine(self, event: EngineEvent) -> None:
        """The process of its collective engine has come so far."""

    def on_found_dead(self, child: e.ChildId, status: int | None) -> None:
        """A process was ending by itself when its end was asked for."""

    def on_reducer_ready(self) -> None:
        """A warm reducer is at hand."""

    def on_pressure(self, reason: str, left_bytes: int, *, mild: bool = False) -> None:
        """Memory is about to run out; ``mild``: the system only warns."""

    def trouble(self) -> str:
        """Why its world can't go on although nothing has broken, or nothing."""

    def on_state_failed(self, generation: Tag, reason: str) -> None: ...

    def on_prepare_failed(self, serial: int, reason: str) -> None: ...

    def tick(self, let_go: bool) -> None:
        """``let_go``: nothing is to be started here."""

    def deadlines(self, let_go: bool) -> list[float]: ...
