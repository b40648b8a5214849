"""The trainer of one job on this node and its spare: started, replaced, ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from elasticd.core.context import Context
from elasticd.core.taking_part.adoption import AdoptedTrainer
from elasticd.core.taking_part.trainers import Trainer, adopted
from elasticd.core.words.effects import KillChild, StartTrainer, TellTrainer
from elasticd.core.words.trainers import RunScript, TrainerAtRun, TrimMemory
from elasticd.recovery.gpu import GpuBudget
from elasticd.recovery.headroom import Headroom
from elasticd.types import JobId, Tag

_START_LIMIT = 4
"""After a trainer has died this often before Run(...), it is tried again only now and then."""
_HOPELESS_STARTS = 2 * _START_LIMIT
_LONGEST_PAUSE_SECONDS = 10.0
"""Before it is tried again; the first pause is a second, and each is twice as long."""
_MOST_DOUBLINGS = 6
"""Of the pause before the next spare, where spares die before Run(...): the trainer may have a port
or a lock that every process of the script wants."""


@dataclass(slots=True)
class Crew:
    ctx: Context
    job: JobId
    trainer: Trainer | None = None
    spare: Trainer | None = None
    false_starts: int = 0
    last_end: str = ""
    """How the last of them ended."""
    start_at: float = 0.0
    spare_failures: int = 0
    """So many spares in a row have died before Run(...)."""
    spare_at: float = 0.0
    """None is started before."""
    why_none: str = ""
    """Why no trainer is started for a while."""
    headroom: Headroom = field(default_factory=Headroom)
    pressed_until: float = 0.0
    """Memory is short on this machine: no spare before this time; 0: it isn't."""
    needs_less: str = ""
    """Why the whole job has to need less, as long as memory is short."""
    gpu: GpuBudget = field(default_factory=GpuBudget)

    # --- who there is -----------------------------------------------------------------------------

    def of(self, child: int) -> Trainer | None:
        """The trainer, or the spare, that is this child."""
        found = (t for t in (self.trainer, self.spare) if t is not None and t.child == child)
        return next(found, None)

    def children(self) -> set[int]:
        """Both, by number."""
        return {t.child for t in (self.trainer, self.spare) if t is not None}

    @property
    def done(self) -> bool:
        """The script has come to its last step."""
        return self.trainer is not None and self.trainer.phase in ("finished", "released", "done")

    @property
    def left_the_loop(self) -> bool:
        return self.trainer is not None and self.trainer.left_the_loop

    @property
    def hopeless(self) -> bool:
        return self.false_starts >= _HOPELESS_STARTS

    # --- starts -----------------------------------------------------------------------------------

    def replace(self) -> None:
        """A trainer where there is none: the spare, else a fresh one, unless too many have died."""
        if self.spare is not None:
            if self.spare.phase != "starting":
                self.spare_failures = 0
            self.trainer, self.spare = self.spare, None
            if self.trainer.phase == "waiting":
                self.run(self.trainer)
        elif self.false_starts < _START_LIMIT or self.ctx.now >= self.start_at:
            self.why_none = ""
            self.trainer = self._start(spare=False)
            doublings = min(max(0, self.false_starts - _START_LIMIT), _MOST_DOUBLINGS)
            self.start_at = self.ctx.now + min(_LONGEST_PAUSE_SECONDS, 2.0**doublings)
        else:
            times = f"trainer died {self.false_starts} times before Run(...)"
            self.why_none = f"{times}, the last time: {self.last_end}"

    def adopt(self, trainers: Sequence[AdoptedTrainer], now: Tag | None) -> AdoptedTrainer | None:
        """Go on with the best that a daemon before this one has started, ``now`` being the newest
        world; and with a spare that was never used. Returns the trainer."""

        def merit(one: AdoptedTrainer) -> tuple[bool, bool, bool]:
            return one.said.generation == now is not None, one.used, not one.left.spare

        first, *others = [*sorted(trainers, key=merit, reverse=True), None]
        if first is not None:
            self.trainer = adopted(first)
            second = others[0]
            self.spare = adopted(second) if second is not None and not second.used else None
        return first

    def run(self, trainer: Trainer) -> None:
        """Let one that waits go on to its script."""
        trainer.goes_on()
        self.ctx.do(TellTrainer(trainer.child, RunScript()))

    def add_spare(self) -> None:
        may = not self.pressed_until and self.ctx.now >= self.spare_at
        if self.spare is None and not self.done and may:
            self.spare = self._start(spare=True)

    def _start(self, spare: bool) -> Trainer:
        child = self.ctx.next_child()
        self.ctx.do(StartTrainer(child, self.job, spare))
        return Trainer(child)

    def at_run(self, trainer: Trainer, said: TrainerAtRun) -> None:
        """Its script has come to ``Run(…)``."""
        trainer.at_run(said)
        if trainer is not self.spare:
            self.false_starts, self.why_none = 0, ""

    # --- ends -------------------------------------------------------------------------------------

    def stand_down(self, why: str) -> bool:
        """No job is to run here. True when there is no trainer any more."""
        self.drop_spare(why)
        if self.trainer is None:
            self.why_none = why
        return self.trainer is None

    def discharge(self, why: str) -> None:
        """The world runs without our trainer."""
        if self.trainer is not None and self.trainer.phase != "done":
            self.ctx.do(KillChild(self.trainer.child, why, graceful=True))
        self.trainer = None

    def renew(self, why: str) -> None:
        """What runs was begun before, and what has failed says nothing any more."""
        self.drop_spare(why)
        self.discharge(why)
        self.gpu.forget()
        self.false_starts, self.spare_failures, self.spare_at, self.why_none = 0, 0, 0.0, ""

    def trainer_ended(self, how: str) -> None:
        """Not as it should."""
        if self.trainer is not None and self.trainer.phase in ("starting", "waiting"):
            self.false_starts, self.last_end = self.false_starts + 1, how
        self.trainer = None

    def drop_spare(self, why: str, graceful: bool = False) -> None:
        if self.spare is not None:
            self.ctx.do(KillChild(self.spare.child, why, graceful=graceful))
            self.spare = None

    def spare_ended(self, status: int | None, tail: str) -> bool:
        """Whether another one may be tried at once."""
        fails = self.spare is not None and self.spare.phase == "starting"
        self.spare_failures = self.spare_failures + 1 if fails else 0
        self.spare = None
        pause = 0.0
        if self.spare_failures >= _START_LIMIT:
            doublings = min(self.spare_failures - _START_LIMIT, _MOST_DOUBLINGS)
            pause = _LONGEST_PAUSE_SECONDS * 2**doublings
            self.spare_at = self.ctx.now + pause
        self.ctx.log(
            "warning", "spare trainer ended", status=status, tail=tail[-400:], pause_seconds=pause
        )
        return not pause

    def end(self, why: str) -> None:
        """The job needs nobody any more."""
        for trainer in (self.trainer, self.spare):
            if trainer is not None and trainer.phase != "done":
                self.ctx.do(KillChild(trainer.child, why, graceful=True))
        self.trainer = self.spare = None

    def kill_stopped(self, trainer: Trainer, seconds: float) -> None:
        """It was stopped for ``seconds``, and nobody of us has done that."""
        if trainer.phase != "done":
            text = f"its trainer {trainer.pid} was stopped (SIGSTOP) for {seconds:.1f} s"
            trainer.hangs(f"{text} and could not show its stack", self.ctx.now - seconds)
            self.ctx.do(KillChild(trainer.child, "it was stopped"))

    # --- memory -----------------------------------------------------------------------------------

    def on_pressure(self, reason: str, left_bytes: int, *, mild: bool = False) -> None:
        """Give up what this node can by itself; else the whole job has to need less. ``mild``: the
        system only warns."""
        quiet = self.headroom.quiet_seconds(self.ctx.now, begins=not self.pressed_until)
        self.pressed_until = self.ctx.now + quiet
        gift = self.headroom.sign(left_bytes, self.spare is not None, mild)
        match gift:
            case "spare":
                if self.spare is not None:
                    text = "its spare trainer ends before something else has to"
                    self.tell_of_pressure(f"{reason}: {text}")
                    self.drop_spare(reason)
            case "caches":
                if self.trainer is not None:
                    self.tell_of_pressure(f"{reason}: its trainer gives its caches back")
                    self.ctx.do(TellTrainer(self.trainer.child, TrimMemory()))
            case "recompute":
                why = f"{reason}, less than before it gave up what it could by itself"
                self.tell_of_pressure(f"{why}: it asks the job to need less")
                self.needs_less = why
            case None:
                pass
            case _:
                assert_never(gift)

    def tell_of_pressure(self, text: str) -> None:
        self.ctx.emit("memory_pressure", text, self.job, culprit=self.ctx.me)

    # --- time -------------------------------------------------------------------------------------

    def due(self, let_go: bool) -> bool:
        """Whether something may be started now that had to wait."""
        due = self._starts_later(let_go) and self.ctx.now >= self.start_at
        if self.pressed_until and self.ctx.now >= self.pressed_until:
            self.pressed_until, self.needs_less = 0.0, ""
            self.headroom.forget()
            due = True
        if self.spare_at and self.ctx.now >= self.spare_at:
            self.spare_at, due = 0.0, True
        return due

    def _starts_later(self, let_go: bool) -> bool:
        return bool(self.why_none) and self.trainer is None and not let_go

    def deadlines(self, let_go: bool) -> list[float]:
        times = [self.start_at] if self._starts_later(let_go) else []
        return times + [time for time in (self.pressed_until, self.spare_at) if time]
